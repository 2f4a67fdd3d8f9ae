"""JSON schemas as constraints on decoding: which tokens may come next in a row (llguidance).

A schema is compiled into a grammar over the bytes of a model's tokens. A matcher follows one row:
it gives a mask for the next token and takes the token that was sampled. So whatever the model
wants to say, a row that ends by itself is JSON that the schema accepts. A row that max_tokens or
a stop string cuts is only the beginning of it: validate all the same.

Between its tokens the JSON has the one space after a comma and a colon that `json.dumps` writes,
and nothing else. Free whitespace would let a model that is lost fill its budget with blanks.

A schema comes from outside and may be hostile. llguidance bounds its own work by fuel, but its
recursion overflows the stack, which ends the process: so depth is measured here, before it.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, cast

from agents.records import JsonObject
from workers.engines.protocol import EngineError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

MAX_SCHEMA_BYTES = 100_000
"""As JSON. Compiling takes up to a second at this size, a millisecond for the usual schema."""

MAX_SCHEMA_DEPTH = 100
"""Levels of objects and arrays. llguidance's parser itself ends at 128."""

MAX_FOLLOWED_DEPTH = 1000
"""Levels that a path through all references could have: depth x (different references + 1).
Chains of references overflowed a stack of 8 MiB somewhere above 2000."""

FORMAT: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}


class Matcher:
    """One row's place in its grammar. Not for two threads at once."""

    def __init__(self, state: LLMatcher, ends_only: bytes) -> None:
        self._state = state
        self._ends_only = ends_only
        self.allowed = b""
        """Of the next token: one bit per token id, the lowest bit of each byte first. The
        model's end-of-turn tokens are among them exactly when the text so far is a whole
        instance. Never empty while the matcher is not `complete`."""
        self.complete = False
        """The text is an instance, and nothing can be added to it."""
        self._look_ahead()

    def consume(self, token: int) -> None:
        """Take the token that was sampled; not for end-of-turn tokens.

        Raises EngineError: `bad_request` if the token does not fit the grammar, or if going on
        takes more work than llguidance's limits allow.
        """
        self._state.consume_token(token)
        self._look_ahead()

    def copy(self) -> Matcher:
        """Another matcher at the same place, for another row; takes microseconds."""
        other = copy.copy(self)
        other._state = self._state.deep_copy()
        return other

    def _look_ahead(self) -> None:
        if not self._state.is_stopped():
            self.allowed = self._state.compute_bitmask()
        # Read after the mask was computed: its limits may be what stopped the matcher.
        if self._state.is_error():
            raise _refusal(self._state.get_error())
        self.complete = self._state.is_stopped() or self.allowed == self._ends_only
        if not self.complete and not any(self.allowed):
            raise _refusal("no token of this model's vocabulary can go on")


class GrammarCompiler:
    """Schemas for one model. The tokenizer is prepared once, for the first schema, which takes
    1.5 seconds for a vocabulary of 150 thousand. May be used from several threads."""

    def __init__(self, prepare: Callable[[], LLTokenizer], end_ids: Collection[int]) -> None:
        """`prepare` makes the tokenizer, as wide as the model's logits or wider."""
        self._prepare = prepare
        self._end_ids = sorted(end_ids)
        self._prepared: LLTokenizer | None = None
        self._preparing = threading.Lock()

    def matcher(self, schema: JsonObject) -> Matcher:
        """A matcher at the beginning of an instance of `schema`.

        Blocks for as long as MAX_SCHEMA_BYTES says, while other threads go on. Raises
        EngineError of kind `bad_request` that says what is wrong with the schema: too large, too
        deep, a keyword that cannot be enforced, or no instance at all.
        """
        _check_depth(schema)
        text = json.dumps(schema)
        if len(text) > MAX_SCHEMA_BYTES:
            raise _too_large()
        tokenizer = self._compiled_tokenizer()
        from llguidance import LLMatcher, LLParserLimits

        try:
            grammar = LLMatcher.grammar_from_json_schema(text, overrides=FORMAT)
            state = LLMatcher(
                tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False)
            )
        except ValueError as error:
            raise _refusal(str(error)) from error
        return Matcher(state, self._ends_only(tokenizer))

    def _compiled_tokenizer(self) -> LLTokenizer:
        with self._preparing:
            if self._prepared is None:
                try:
                    self._prepared = self._prepare()
                except ImportError as error:
                    raise EngineError(
                        "a JSON schema needs the package llguidance, which is not installed; "
                        "install it with: pip install 'switchyard[torch]'",
                        kind="bad_request",
                    ) from error
                except ValueError as error:
                    raise _refusal(f"it needs another kind of tokenizer: {error}") from error
            return self._prepared

    def _ends_only(self, tokenizer: LLTokenizer) -> bytes:
        mask = bytearray(-(-tokenizer.vocab_size // 32) * 4)
        for token in self._end_ids:
            mask[token // 8] |= 1 << token % 8
        return bytes(mask)


def _check_depth(schema: JsonObject) -> None:
    """Walk level by level, and no further than a schema of the permitted size can go: every
    value takes at least two bytes."""
    references: set[str] = set()
    level: list[dict[str, object] | list[object]] = [cast(dict[str, object], schema)]
    depth = seen = 0
    while level:
        depth += 1
        if depth > MAX_SCHEMA_DEPTH:
            raise _refusal(f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        below: list[dict[str, object] | list[object]] = []
        for node in level:
            values = node.values() if isinstance(node, dict) else node
            seen += len(values)
            if seen > MAX_SCHEMA_BYTES:
                raise _too_large()
            below.extend(each for each in values if isinstance(each, dict | list))
            if isinstance(node, dict) and isinstance(target := node.get("$ref"), str):
                references.add(target)
        level = below
    followed = depth * (len(references) + 1)
    if followed > MAX_FOLLOWED_DEPTH:
        raise _refusal(
            f"{len(references)} different references at a depth of {depth} could lead {followed} "
            f"levels deep, more than {MAX_FOLLOWED_DEPTH}; write fewer definitions into one schema"
        )


def _too_large() -> EngineError:
    return _refusal(f"it is larger than {MAX_SCHEMA_BYTES} bytes")


def _refusal(reason: str) -> EngineError:
    return EngineError(
        "the JSON schema cannot constrain the completion: "
        f"{' '.join(reason.replace('<non-verbose/>', '').split())[:400]}",
        kind="bad_request",
    )

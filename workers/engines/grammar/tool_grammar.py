"""Tool calls that cannot be malformed: free text, and calls of the offered tools in it.

While the model writes text, it is not constrained: any token is allowed, including special tokens
and incomplete characters, and the log-probabilities are the model's own. As soon as the text
contains `<tool_call>`, a grammar applies until the call is closed:

    <tool_call>
    {"name": "<one of the offered tools>", "arguments": {<what its schema accepts>}}
    </tool_call>

Then the text is free again or, if only a single call is allowed, the completion ends. A call ends
with its own token, and the turn cannot end inside a call. max_tokens and stop strings can still
truncate one.

A completion that must call a tool has no text before its first call: after such text, nothing would
force the model to make its call before its tokens run out.

In free text no grammar runs. Only a token that completes the opening tag and contains more text can
break the call there (the micro models have tokens that are half a call). These few tokens are
checked once for each beginning of the tag with which the text may end.

Some valid JSON cannot be stored in a record: 1e999, more than 4300 digits, more than 64 levels.
`parse_tool_calls` refuses it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from loopline.agents.protocols import MAX_SCHEMA_BYTES
from loopline.agents.records import JsonObject, ToolSpec
from loopline.workers.engines.grammar.matcher import GrammarMatcher
from loopline.workers.engines.grammar.schema_limits import refusal, schema_text
from loopline.workers.engines.text.tool_markup import CLOSE, OPEN

if TYPE_CHECKING:
    from llguidance import LLTokenizer

THE_TOOLS = "the offered tools cannot constrain the completion"

_OPEN = OPEN.encode()


class ToolKey(NamedTuple):
    """The constraint on the calls of a completion, to be compiled."""

    parameters: tuple[tuple[str, str], ...]
    """Name and parameters (as JSON) of each tool that may be called."""
    required: bool = False
    """Whether the completion must start with a call."""
    single: bool = False
    """Whether the completion ends with its first call."""


class MarkupTokens:
    """The tokens of a vocabulary that can be part of a tag."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        """Checks every token once: 50 ms for 150 thousand tokens."""
        self.tokenizer = tokenizer
        pieces = ((token, self.piece(token)) for token in range(tokenizer.vocab_size))
        self.ending_a_tag = [(token, piece) for token, piece in pieces if b">" in piece]
        """Tokens that can complete the opening tag; no other tokens can."""
        self.special_open, self.special_close = (
            [
                token
                for token, piece in self.ending_a_tag
                if piece == tag.encode() and tokenizer.is_special_token(token)
            ]
            for tag in (OPEN, CLOSE)
        )

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the text."""
        return self.tokenizer.decode_bytes([token])


def tool_subject(name: str) -> str:
    """The beginning of a refusal of one tool's parameters."""
    return (
        f"the parameters of the tool {name!r} cannot constrain its calls (fix them, or set "
        "constrain_tools = false for this pool)"
    )


def parameters_text(tools: Sequence[ToolSpec]) -> tuple[tuple[str, str], ...]:
    """Name and parameters of each tool, to be compiled. Raises EngineError `bad_request` if a
    tool's parameters are too deep or not an object, naming the tool, or if all together are too
    large."""
    texts = tuple(
        (tool.name, schema_text(_object(tool), tool_subject(tool.name))) for tool in tools
    )
    size = sum(len(text) for _, text in texts)
    if size > MAX_SCHEMA_BYTES:
        raise refusal(
            THE_TOOLS,
            f"their parameters have {size} bytes, more than the limit of {MAX_SCHEMA_BYTES}; "
            "offer fewer tools, or set constrain_tools = false for this pool",
        )
    return texts


def _object(tool: ToolSpec) -> JsonObject:
    """The parameters, restricted to objects, because arguments are always an object."""
    kind = tool.parameters.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise refusal(
            tool_subject(tool.name),
            f"arguments must be an object, but their type is {json.dumps(kind)}",
        )
    return {**tool.parameters, "type": "object"}


def call_grammar(
    tools: Sequence[tuple[str, str]], options: JsonObject, markup: MarkupTokens, *, whole: bool
) -> str:
    """The grammar for llguidance after an opening tag, or of a `whole` call with its tag. A tag is
    text or, if the vocabulary has one, a special token, which text never matches."""
    calls: list[str] = []
    schemas: list[JsonObject] = []
    for place, (name, parameters) in enumerate(tools):
        head = json.dumps(f'{{"name": {json.dumps(name)}, "arguments": ')
        calls.append(f'{head} @parameters_{place} "}}"')
        schema = {**json.loads(parameters), "x-guidance": options}
        schemas.append({"name": f"parameters_{place}", "json_schema": schema})
    opening, tags = ("open ", {"open": (OPEN, markup.special_open)}) if whole else ("", {})
    tags["close"] = (CLOSE, markup.special_close)
    lark = f'start: {opening}"\\n" call "\\n" close\ncall: {" | ".join(calls)}\n'
    for rule, (tag, special) in tags.items():
        lark += f"{rule}: {' | '.join([json.dumps(tag), *(f'<[{token}]>' for token in special)])}\n"
    return json.dumps({"grammars": [{"lark_grammar": lark}, *schemas]})


@dataclass(eq=False)
class ToolGrammar:
    """The tools of a request, compiled for one vocabulary."""

    markup: MarkupTokens
    call: GrammarMatcher
    """Matcher after the opening tag; calls follow copies of it."""
    first: GrammarMatcher | None = None
    """Matcher before the opening tag of a completion's required first call; None if the completion
    may start with text."""
    single: bool = False
    """Whether the completion ends with its first call."""
    _free: dict[bytes, bytes | None] = field(default_factory=dict[bytes, bytes | None])
    _begun: dict[bytes, GrammarMatcher | None] = field(
        default_factory=dict[bytes, GrammarMatcher | None]
    )

    def free(self, tail: bytes) -> bytes | None:
        """Mask of the tokens allowed in free text that ends with `tail`, a beginning of the tag."""
        if tail not in self._free:
            self._free[tail] = self._mask(tail)
        return self._free[tail]

    def begin(self, rest: bytes) -> GrammarMatcher | None:
        """Matcher of a call whose opening tag is already followed by `rest` (in the same token, so
        there are few); None if no call starts like that."""
        if rest not in self._begun:
            self._begun[rest] = self._matcher_after(rest)
        begun = self._begun[rest]
        return None if begun is None else begun.copy()

    def _matcher_after(self, rest: bytes) -> GrammarMatcher | None:
        try:
            return self.call.behind(self.markup.tokenizer.greedy_tokenize(rest.decode()))
        except UnicodeDecodeError:
            return None

    def _mask(self, tail: bytes) -> bytes | None:
        forbidden = [
            token
            for token, piece in self.markup.ending_a_tag
            if _OPEN in tail + piece and self.begin((tail + piece).partition(_OPEN)[2]) is None
        ]
        if not forbidden:
            return None
        mask = bytearray(b"\xff" * len(self.call.allowed))
        for token in forbidden:
            mask[token // 8] &= ~(1 << token % 8)
        return bytes(mask)


class ToolMatcher:
    """A `Matcher` of free text that contains calls."""

    def __init__(self, grammar: ToolGrammar) -> None:
        self._grammar = grammar
        self._tail = b""
        """The longest end of the free text that is a beginning of the opening tag."""
        self._call = None if grammar.first is None else grammar.first.copy()
        self.allowed = grammar.free(b"") if self._call is None else self._call.allowed
        self.complete = False

    def consume(self, token: int) -> None:
        """See `Matcher.consume`."""
        if self._call is None:
            self._read(self._tail + self._grammar.markup.piece(token))
        else:
            self._call.consume(token)
        if self._call is not None and not self._call.complete:
            self.allowed = self._call.allowed
        else:
            self.complete = self._grammar.single and self._call is not None
            self._call = None
            self.allowed = self._grammar.free(self._tail)

    def copy(self) -> Self:
        """See `Matcher.copy`."""
        clone = copy.copy(self)
        clone._call = None if self._call is None else self._call.copy()
        return clone

    def _read(self, text: bytes) -> None:
        _, opened, rest = text.partition(_OPEN)
        if not opened:
            self._tail = _beginning_of_tag(text)
            return
        self._tail = b""
        self._call = self._grammar.begin(rest)
        if self._call is None:
            raise refusal(THE_TOOLS, f"no call of these tools starts with {rest[:80]!r}")


def _beginning_of_tag(text: bytes) -> bytes:
    longest = min(len(_OPEN) - 1, len(text))
    return next(
        (_OPEN[:length] for length in range(longest, 0, -1) if text.endswith(_OPEN[:length])), b""
    )

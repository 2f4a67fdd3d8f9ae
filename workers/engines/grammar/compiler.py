"""Compiles JSON schemas and tools into matchers, which restrict a row's next token (llguidance).

A schema is compiled into a grammar over the bytes of a model's tokens. A matcher follows one row:
it returns a mask for the next token and consumes the token that was sampled. So any row that ends
by itself is JSON that the schema accepts. A row that max_tokens or a stop string truncates is only
the beginning of such JSON, so it must still be validated.

With tools, only the calls are constrained, not the text around them: see `tool_grammar`.

Between its tokens the JSON has only the one space after a comma and a colon that `json.dumps`
writes. Free whitespace would let a confused model fill its budget with blanks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from loopline.agents.records import JsonObject, ToolSpec
from loopline.workers.engines.grammar.matcher import GrammarMatcher, Lexer, Matcher
from loopline.workers.engines.grammar.schema_limits import THE_SCHEMA, refusal, schema_text
from loopline.workers.engines.grammar.tool_grammar import (
    THE_TOOLS,
    MarkupTokens,
    ToolGrammar,
    ToolKey,
    ToolMatcher,
    call_grammar,
    parameters_text,
    tool_subject,
)
from loopline.workers.engines.protocol import EngineError, GenerateRequest
from loopline.workers.installation import install_hint

if TYPE_CHECKING:
    from llguidance import LLTokenizer
    from llguidance._lib import JsonCompileOptions

KEPT = 32
"""Most compiled grammars in memory: a few per role. The largest take 10 MB each."""

RENEWED_AFTER = 1000
"""Uses after which a grammar is compiled again: its lexer states grow with the text matched."""

FORMAT: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}

Key = str | ToolKey
"""A schema as JSON, or tools."""


@dataclass(eq=False)
class _Compiled:
    """A matcher in its initial state, to be copied."""

    matcher: GrammarMatcher | ToolMatcher
    lexer: Lexer
    uses: int = 0


@dataclass(frozen=True)
class _Prepared:
    """Data that is computed once per vocabulary."""

    tokenizer: LLTokenizer
    ends_only: bytes


class GrammarCompiler:
    """Grammars for one model. The tokenizer is prepared once, for the first grammar, which takes
    1.5 seconds for a vocabulary of 150 thousand. Thread-safe."""

    def __init__(self, prepare: Callable[[], LLTokenizer], end_ids: Collection[int]) -> None:
        """`prepare` builds the tokenizer, at least as wide as the model's logits."""
        self._prepare = prepare
        self._end_ids = sorted(end_ids)
        self._prepared: _Prepared | None = None
        self._markup: MarkupTokens | None = None
        self._preparing = threading.Lock()
        self._compiled: OrderedDict[Key, _Compiled] = OrderedDict()
        self._counting = threading.Lock()

    def matcher(self, schema: JsonObject) -> Matcher:
        """A matcher at the beginning of an instance of `schema`.

        Blocks for the time stated at MAX_SCHEMA_BYTES, while other threads continue, unless the
        schema was compiled before. Raises EngineError of kind `bad_request` that states what is
        wrong with the schema: too large, too deep, a keyword that cannot be enforced, or no valid
        instance.
        """
        return self.compile_matcher(schema_text(schema, THE_SCHEMA))

    def tool_matcher(
        self, tools: Sequence[ToolSpec], *, required: bool = False, single: bool = False
    ) -> Matcher:
        """A matcher at the beginning of a text that may call these tools, must call one
        (`required`), or may call only once (`single`); see `matcher`. The error names the tool."""
        return self.compile_matcher(ToolKey(parameters_text(tools), required, single))

    def known(self, key: Key) -> Matcher | None:
        """A matcher of a grammar that is already compiled; takes microseconds. None if there is
        none."""
        with self._counting:
            entry = self._compiled.get(key)
            if entry is None:
                return None
            entry.uses += 1
            if entry.lexer.full or entry.uses > RENEWED_AFTER:
                del self._compiled[key]
                return None
            self._compiled.move_to_end(key)
        return entry.matcher.copy()

    def compile_matcher(self, key: Key) -> Matcher:
        """Return the matcher from `known`, compiled first if necessary."""
        matcher = self.known(key)
        if matcher is not None:
            return matcher
        prepared = self._vocabulary()
        if isinstance(key, str):
            first = self._schema_matcher(key, prepared)
            entry = _Compiled(first, first.lexer)
        else:
            grammar = self._tool_grammar(key, prepared)
            entry = _Compiled(ToolMatcher(grammar), grammar.call.lexer)
        with self._counting:
            self._compiled[key] = entry
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        return entry.matcher.copy()

    def _schema_matcher(
        self, text: str, prepared: _Prepared, subject: str = THE_SCHEMA
    ) -> GrammarMatcher:
        from llguidance import LLMatcher

        try:
            grammar = LLMatcher.grammar_from_json_schema(text, overrides=FORMAT)
        except ValueError as error:
            raise refusal(subject, str(error)) from error
        return _begin(grammar, prepared, subject)

    def _tool_grammar(self, key: ToolKey, prepared: _Prepared) -> ToolGrammar:
        markup = self._markup = self._markup or MarkupTokens(prepared.tokenizer)
        lexer = Lexer()
        """The lexer that both grammars share: when it is full, both are compiled again."""

        def begin(*, whole: bool) -> GrammarMatcher:
            options = cast(JsonObject, FORMAT)
            grammar = call_grammar(key.parameters, options, markup, whole=whole)
            return _begin(grammar, prepared, THE_TOOLS, lexer)

        try:
            first = begin(whole=True) if key.required else None
            return ToolGrammar(markup, begin(whole=False), first, key.single)
        except EngineError:
            # llguidance does not report which tool is at fault.
            for name, parameters in key.parameters:
                self._schema_matcher(parameters, prepared, tool_subject(name))
            raise

    def _vocabulary(self) -> _Prepared:
        with self._preparing:
            if self._prepared is None:
                try:
                    tokenizer = self._prepare()
                except ImportError as error:
                    raise EngineError(
                        "a JSON schema or tools need the package llguidance, which is not "
                        f"installed; {install_hint('torch')} (or, for tools, set "
                        "constrain_tools = false for this pool)",
                        kind="bad_request",
                    ) from error
                except ValueError as error:
                    raise refusal(
                        THE_SCHEMA, f"it needs another kind of tokenizer: {error}"
                    ) from error
                self._prepared = _Prepared(tokenizer, self._end_token_mask(tokenizer))
            return self._prepared

    def _end_token_mask(self, tokenizer: LLTokenizer) -> bytes:
        mask = bytearray(-(-tokenizer.vocab_size // 32) * 4)
        for token in self._end_ids:
            mask[token // 8] |= 1 << token % 8
        return bytes(mask)


def grammar_key(request: GenerateRequest, *, constrain_tools: bool) -> Key | None:
    """The constraint on a request's completions; None for free text. A schema applies to the whole
    completion, so tools are ignored then. Raises EngineError `bad_request`."""
    if request.json_schema is not None:
        return schema_text(request.json_schema, THE_SCHEMA)
    if request.callable_tools and constrain_tools:
        name = request.tool_choice.name
        tools = [tool for tool in request.callable_tools if name in (None, tool.name)]
        return ToolKey(parameters_text(tools), request.must_call, request.single_call)
    return None


def _begin(
    grammar: str, prepared: _Prepared, subject: str, lexer: Lexer | None = None
) -> GrammarMatcher:
    from llguidance import LLMatcher, LLParserLimits

    try:
        state = LLMatcher(
            prepared.tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False)
        )
    except ValueError as error:
        raise refusal(subject, str(error)) from error
    return GrammarMatcher(state, prepared.ends_only, subject, lexer)

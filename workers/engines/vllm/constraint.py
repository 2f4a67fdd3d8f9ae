"""Constraints on completions, in the format of a vLLM server (`structured_outputs`).

A JSON schema is sent unchanged. Tools are sent as one grammar for llguidance: free text that
contains calls of the offered tools, in the markup of
`loopline.workers.engines.grammar.tool_grammar`. The server needs llguidance for it
(`--structured-outputs-config.backend guidance`); xgrammar interprets the same grammar differently,
and lets a confused model fill its budget with blanks.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

from loopline.agents.records import JsonObject
from loopline.workers.engines.grammar.compiler import FORMAT, Key
from loopline.workers.engines.grammar.tool_grammar import MarkupTokens, ToolKey
from loopline.workers.engines.text.tool_markup import CLOSE, OPEN

if TYPE_CHECKING:
    from llguidance import LLTokenizer

ANY_TEXT = r"/(.|\n)*/"


@dataclass(frozen=True)
class SpecialTokens:
    """Tokens of a vocabulary that a grammar never treats as text, even if they look like it."""

    opens: tuple[int, ...]
    """Tokens for the opening tag."""
    closes: tuple[int, ...]
    others: tuple[int, ...]
    """Tokens that a text may contain: all except the opening tag and the end of a turn."""

    @classmethod
    def of(cls, tokenizer: LLTokenizer, ends: Collection[int]) -> Self:
        """Collect the special tokens of a vocabulary; checks every token once."""
        markup = MarkupTokens(tokenizer)
        tags = {*markup.special_open, *ends}
        others = [
            token
            for token in range(tokenizer.vocab_size)
            if tokenizer.is_special_token(token) and token not in tags
        ]
        return cls(tuple(markup.special_open), tuple(markup.special_close), tuple(others))


class ServerGrammar:
    """A `Matcher` of a row that the server constrains: it does nothing here."""

    allowed: bytes | None = None
    complete = False

    def consume(self, token: int) -> None:
        """Do nothing: the server has consumed it."""

    def copy(self) -> Self:
        return self


def constraint(key: Key, special: SpecialTokens | None) -> JsonObject:
    """The field `structured_outputs`; tools need the special tokens of the vocabulary."""
    if isinstance(key, str):
        schema: JsonObject | bool = json.loads(key)
        if isinstance(schema, dict):
            # With the same blanks as a local engine's grammar: models have learned those.
            schema = {**schema, "x-guidance": cast(JsonObject, FORMAT)}
        return {"json": schema, "disable_any_whitespace": True}
    assert special is not None
    return {"grammar": tool_lark(key, special)}


def tool_lark(key: ToolKey, special: SpecialTokens) -> str:
    """The grammar of a completion that may or must call these tools, in llguidance's Lark.

    `head` is lazy: text ends with the first opening tag in it, and a call follows. Special tokens
    are not text, so they have separate branches: the tag, if it is a special token, and all others,
    which a model may write freely (α-UMi's models write `</s>`).
    """
    free = "pre* TEXT?" if special.others else "TEXT?"
    match key.required, key.single:
        case True, True:
            start = "whole"
        case True, False:
            start = f"whole part* {free}"
        case False, True:
            start = f"part | {free}"
        case _:
            start = f"part* {free}"
    before = "pre* " if special.others else ""
    heads = ["lazy_head", *(f"TEXT? <[{token}]>" for token in special.opens)]
    lines = [
        f"start: {start}",
        f'part: {before}head "\\n" call "\\n" close',
        'whole: open "\\n" call "\\n" close',
        f"head: {' | '.join(heads)}",
        f"lazy_head[lazy]: ANY {json.dumps(OPEN)}",
        f"ANY: {ANY_TEXT}",
        r"TEXT: /(.|\n)+/",
    ]
    if special.others:
        lines.append(f"pre: TEXT? <[{','.join(map(str, special.others))}]>")
    opens, closes = special.opens, special.closes
    for rule, tag, tokens in (("open", OPEN, opens), ("close", CLOSE, closes)):
        branches = [json.dumps(tag), *(f"<[{token}]>" for token in tokens)]
        lines.append(f"{rule}: {' | '.join(branches)}")
    calls: list[str] = []
    for place, (name, parameters) in enumerate(key.parameters):
        head = json.dumps(f'{{"name": {json.dumps(name)}, "arguments": ')
        calls.append(f'{head} parameters_{place} "}}"')
        schema = {**json.loads(parameters), "x-guidance": FORMAT}
        lines.append(f"parameters_{place}: %json {json.dumps(schema)}")
    lines.append(f"call: {' | '.join(calls)}")
    return "\n".join(lines) + "\n"


PROBE = f"start: probe\nprobe[lazy]: {ANY_TEXT}\n"
"""A grammar that only llguidance can read."""

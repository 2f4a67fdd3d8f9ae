"""What completions are held to, in the words of a vLLM server (`structured_outputs`).

A JSON schema goes as it is. Tools go as one grammar for llguidance: free text, and calls of the
offered tools in it, in the markup of `loopline.workers.engines.grammar.tool_grammar`. The server
needs llguidance for it (`--structured-outputs-config.backend guidance`); xgrammar reads the same
grammar in another way, and lets a model that is lost fill its budget with blanks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Self

from loopline.agents.records import JsonObject
from loopline.workers.engines.grammar.compiler import FORMAT, Key
from loopline.workers.engines.grammar.tool_grammar import ToolKey
from loopline.workers.engines.text.tool_markup import CLOSE, OPEN

ANY_TEXT = r"/(.|\n)*/"


class ServerGrammar:
    """A `Matcher` of a row that is held to its grammar elsewhere: nothing is to be done here."""

    allowed: bytes | None = None
    complete = False

    def consume(self, token: int) -> None:
        """The server did."""

    def copy(self) -> Self:
        return self


def constraint(key: Key, opens: Sequence[int], closes: Sequence[int]) -> JsonObject:
    """The field `structured_outputs`. `opens` and `closes` are special tokens that stand for the
    tags, if the vocabulary has such."""
    if isinstance(key, str):
        return {"json": json.loads(key), "disable_any_whitespace": True}
    return {"grammar": tool_lark(key, opens, closes)}


def tool_lark(key: ToolKey, opens: Sequence[int], closes: Sequence[int]) -> str:
    """The text of a completion that may call these tools, or must, in llguidance's Lark.

    `head` is lazy: text ends with the first opening tag in it, and what follows is a call. A
    special token is no text, so a tag that is one has a branch of its own.
    """
    match key.required, key.single:
        case True, True:
            start = "whole"
        case True, False:
            start = "whole part* TEXT"
        case False, True:
            start = "part | TEXT"
        case _:
            start = "part* TEXT"
    lines = [
        f"start: {start}",
        'part: head "\\n" call "\\n" close',
        'whole: open "\\n" call "\\n" close',
        "head: " + " | ".join(["lazy_head", *(f"TEXT <[{token}]>" for token in opens)]),
        f"lazy_head[lazy]: TEXT {json.dumps(OPEN)}",
        f"TEXT: {ANY_TEXT}",
    ]
    for rule, tag, special in (("open", OPEN, opens), ("close", CLOSE, closes)):
        branches = [json.dumps(tag), *(f"<[{token}]>" for token in special)]
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
"""A grammar that llguidance alone reads."""

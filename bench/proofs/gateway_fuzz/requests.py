"""The requests: valid ones for every route, and ones with invalid bodies, headers, paths and
queries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson

from loopline.bench.proofs.gateway_fuzz.mutation import TEXTS, Mutator

JSON_BODY = dict[str, Any]
VALID_SHARE, MUTATED_SHARE = 0.02, 0.7
"""Shares of valid and of mutated requests; the rest have a valid body and another error."""
MAX_KNOWN = 500
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW", "get")

_TOOL: JSON_BODY = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": False,
    },
}
_CALL: JSON_BODY = {
    "id": "call_1", "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
}  # fmt: skip
_SCHEMA: JSON_BODY = {
    "type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"],
    "additionalProperties": False,
}  # fmt: skip

_CHATS: tuple[JSON_BODY, ...] = (
    {"model": "llm", "messages": [{"role": "user", "content": "What is 3 + 4?"}]},
    {
        "model": "slm",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Weather in Oslo?"}]},
            {"role": "assistant", "content": None, "tool_calls": [_CALL]},
            {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
        ],
        "tools": [_TOOL], "tool_choice": "auto", "parallel_tool_calls": True,
        "stream": True, "stream_options": {"include_usage": True}, "seed": 7, "n": 1,
        "stop": ["\n\n"], "max_completion_tokens": 20, "temperature": 0.5, "top_p": 0.9,
        "frequency_penalty": 0.1, "presence_penalty": 0.1, "logprobs": True,
        "return_token_ids": True, "metadata": {"team": "blue"}, "user": "u",
    },
    {
        "model": "llm", "messages": [{"role": "developer", "content": "x"},
                                     {"role": "user", "content": "What is 1 + 1?"}],
        "response_format": {
            "type": "json_schema", "json_schema": {"name": "sum", "schema": _SCHEMA, "strict": True}
        },
        "tools": [_TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}}, "n": 2,
    },
    {"model": "workflow/solo", "messages": [{"role": "user", "content": "What is 2 * 3?"}]},
)  # fmt: skip
_RESPONSES: tuple[JSON_BODY, ...] = (
    {"model": "llm", "input": "What is 3 + 4?"},
    {
        "model": "slm", "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user",
             "content": [{"type": "input_text", "text": "Weather in Oslo?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ],
        "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "function", "name": "weather"}, "stream": True,
        "text": {"format": {"type": "json_schema", "name": "sum", "schema": _SCHEMA}},
        "include": ["message.output_text.logprobs"], "max_output_tokens": 30, "temperature": 0.5,
        "top_p": 0.9, "metadata": {"a": "b"}, "truncation": "disabled", "store": True,
        "reasoning": {"summary": "auto"}, "parallel_tool_calls": True, "user": "u",
    },
    {"model": "llm", "input": "What is 1 + 2?", "background": True},
    {"model": "llm", "input": [{"type": "item_reference", "id": "@item"}],
     "previous_response_id": "@response"},
)  # fmt: skip
_RUNS: tuple[JSON_BODY, ...] = (
    {"workflow": "solo", "prompt": "What is 2 + 5?"},
    {
        "workflow": "chat", "messages": [{"role": "user", "content": "What is 2 + 2?"}],
        "policies": {"chat": "slm"}, "seed": 3, "stream": True, "tags": {"a": "b"},
        "budget": {"tokens": 500, "micro_dollars": 9_000, "seconds": 5},
        "options": {"generation": {"temperature": 0.5}}, "webhook": "http://127.0.0.1:9/hook",
    },
)  # fmt: skip
_FORK: JSON_BODY = {"at_turn": 0, "seed": 1, "policies": {"solo": "slm"}, "tags": {"a": "b"}}
_FEEDBACK: JSON_BODY = {"value": 0.5, "source": "judge", "comment": "x", "agent": "solo", "turn": 0}

_ROUTES: tuple[tuple[int, str, str, tuple[JSON_BODY, ...]], ...] = (
    (30, "POST", "/v1/chat/completions", _CHATS),
    (6, "POST", "/sessions/s1/v1/chat/completions", _CHATS),
    (24, "POST", "/v1/responses", _RESPONSES),
    (14, "POST", "/v1/runs", _RUNS),
    (3, "POST", "/v1/runs/@run/fork", (_FORK,)),
    (4, "POST", "/v1/runs/@run/feedback", (_FEEDBACK,)),
    (3, "POST", "/v1/sessions/s1/feedback", (_FEEDBACK,)),
    (1, "POST", "/v1/embeddings", ({"model": "llm", "input": "x"},)),
    (1, "POST", "/v1/runs/@run/cancel", ()),
    (1, "POST", "/v1/responses/@response/cancel", ()),
    (3, "GET", "/v1/chat/completions/@chat", ()),
    (3, "GET", "/v1/responses/@response", ()),
    (1, "DELETE", "/v1/responses/@response", ()),
    (2, "GET", "/v1/responses/@response/input_items", ()),
    (1, "GET", "/v1/runs", ()),
    (2, "GET", "/v1/runs/@run", ()),
    (1, "GET", "/v1/runs/@run/events", ()),
    (1, "GET", "/v1/models", ()),
    (1, "GET", "/v1/models/@text", ()),
)
_QUERIES = ("stream", "starting_after", "limit", "order", "after", "before", "status", "workflow",
            "tag", "include")  # fmt: skip
_QUERY_VALUES = ("true", "1", "asc", "20", "0", "-1", "100", "00000000010", "9" * 30, "1" * 5_000,
                 "0000000001" + "0" * 5_000, "0-0", "0-0/1", "1-1", "99999999999999999999-1",
                 "a=b", "=", "active", "solo", "٣", *TEXTS[:20])  # fmt: skip
_HEADERS = ("idempotency-key", "last-event-id", "x-loopline-session", "content-type", "accept",
            "authorization", "content-length", "expect", "range", "cookie", "x-request-id",
            "accept-encoding", "origin", "traceparent")  # fmt: skip
_HEADER_VALUES = (
    "", " ", "x", "key-1", "key-2", "s1", "0-0/1", "1-1/1", "5", "-1", "9" * 400, "1-", "0-0",
    "99999999999999999999-0/1", "a" * 300, "\xff\xfe", "\x00", "Bearer", "Bearer ", "Bearer \xff",
    "Basic eDp5", "application/xml", "text/event-stream", "100-continue", "../..", "٣", "gzip",
    "bytes=0-1", "1_0-1_0/1_0", "+1-+1/+1", " 1-1/1 ", "18446744073709551615-1",
)  # fmt: skip


@dataclass
class Known:
    """Runs that answers to a key have listed."""

    runs: list[str] = field(default_factory=list[str])

    def add(self, run_id: str, source: random.Random) -> None:
        if len(self.runs) < MAX_KNOWN:
            self.runs.append(run_id)
        else:
            self.runs[source.randrange(MAX_KNOWN)] = run_id


@dataclass(frozen=True)
class FuzzRequest:
    """One request in the form in which it is sent."""

    method: str
    path: str
    """Path with the query, percent-encoded."""
    headers: Sequence[tuple[str, str]]
    """Headers in Latin-1."""
    body: bytes
    caller: int
    """Caller whose key the request has, if the key is valid."""
    foreign: str | None = None
    """Run of another caller in its path."""

    def __str__(self) -> str:
        headers = "; ".join(f"{name}: {value[:60]!r}" for name, value in self.headers
                            if name != "authorization")  # fmt: skip
        body = self.body if len(self.body) <= 600 else self.body[:400] + b"..." + self.body[-150:]
        return f"{self.method} {self.path[:200]} [{headers}] {len(self.body)} bytes {body!r}"


class Requests:
    """Generator of requests."""

    def __init__(self, source: random.Random, keys: Sequence[str]) -> None:
        self._random = source
        self._mutator = Mutator(source)
        self._keys = keys
        self.known = [Known() for _ in keys]

    def next(self) -> FuzzRequest:
        source = self._random
        caller = source.randrange(len(self._keys))
        weights = [weight for weight, *_ in _ROUTES]
        _, method, path, bodies = source.choices(_ROUTES, weights)[0]
        owner = caller if source.random() < 0.7 else source.randrange(len(self._keys))
        runs = self.known[owner].runs
        run_id = source.choice(runs) if runs and source.random() < 0.8 else source.choice(TEXTS)
        named = path.replace("@run", run_id).replace("@chat", f"chatcmpl-{run_id}")
        named = named.replace("@response", f"resp_{run_id}").replace("@text", source.choice(TEXTS))
        # A reward for a run that has left the bus is accepted; it can only reach runs of its own
        # account.
        guarded = run_id in runs and run_id in named and not named.endswith("/feedback")
        foreign = run_id if guarded and owner != caller else None
        headers = [("authorization", f"Bearer {self._keys[caller]}"),
                   ("content-type", "application/json")]  # fmt: skip
        body, kind = b"", source.random()
        if bodies:
            value = self._filled(source.choice(bodies), run_id)
            mutates = VALID_SHARE <= kind < VALID_SHARE + MUTATED_SHARE
            body = self._mutator.body(value) if mutates else orjson.dumps(value)
        query = self._query() if not bodies or source.random() < 0.05 else ""
        if kind >= VALID_SHARE + MUTATED_SHARE:
            method, headers, body = self._disturbed(method, headers, body)
        elif source.random() < 0.05:
            headers.append(("idempotency-key", f"key-{source.randrange(300)}"))
        return FuzzRequest(method, quote(named, safe="/") + query, headers, body, caller, foreign)

    def _filled(self, value: Any, run_id: str) -> Any:
        """Replace the marks in a value with the run's id."""
        if isinstance(value, dict):
            return {key: self._filled(inner, run_id) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner, run_id) for inner in value]
        if value == "@response":
            return f"resp_{run_id}"
        return f"msg_{run_id}" if value == "@item" else value

    def _query(self) -> str:
        source = self._random
        count = source.choice((0, 1, 1, 2, 3))
        pairs = [(source.choice(_QUERIES), source.choice(_QUERY_VALUES)) for _ in range(count)]
        return "?" * bool(pairs) + "&".join(f"{name}={quote(value)}" for name, value in pairs)

    def _disturbed(
        self, method: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        source = self._random
        match source.randrange(8):
            case 0:
                method = source.choice(METHODS)
            case 1:
                headers = headers[1:]
            case 2:
                body = source.choice((b"", b"null", b"[]", b"1", b'""', b"{}", b"\0", b"{" * 50_000,
                                      b"[" * 2_000, source.randbytes(200)))  # fmt: skip
            case _:
                for _ in range(source.choice((1, 1, 2, 5))):
                    name, value = source.choice(_HEADERS), source.choice(_HEADER_VALUES)
                    headers = [*headers, (name, value.encode("utf-8", "replace").decode("latin-1"))]
        return method, headers, body

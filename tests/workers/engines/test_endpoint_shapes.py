"""Answers, errors and habits of real servers, and the openai engine's reading of them.

`cases/endpoint_shapes.json`: each case is one server's output, from public reports, with its right
value. A real engine asks a real server on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast

import pytest

from loopline.agents.answers import final_answer
from loopline.agents.equations import first_wrong
from loopline.agents.records import Message, ToolCall, ToolSpec
from loopline.agents.roles.umi.output import read_action, read_plan
from loopline.agents.thinking import text_without_thoughts
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.protocol import Completion, Discarded, EngineError
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.asking import CALCULATE, request, user

Case = dict[str, Any]
CASES: list[Case] = json.loads((Path(__file__).parent / "cases/endpoint_shapes.json").read_text())
TOOLS = {
    "calculate": CALCULATE,
    "now": ToolSpec(name="now", description="The time.", parameters={"type": "object"}),
}
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass
class Arrived:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Server:
    """Answers according to its case, and records its requests."""

    case: Case
    arrived: list[Arrived] = field(default_factory=list[Arrived])
    host: str = ""
    serving: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self.serving.add(task)
        try:
            await self._answers(reader, writer)
        finally:
            writer.close()
            self.serving.discard(task)

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.arrived.append(Arrived(head[0].split()[1], headers, body))
                for part in self._answer(body):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)

    def _answer(self, request_body: dict[str, Any]) -> Iterator[bytes]:
        case = self.case
        if "answers" in case:
            case = case["answers"][min(len(self.arrived), len(case["answers"])) - 1]
        status = case.get("status", 200)
        sse = case.get("sse")
        body = case.get("body_raw", None if "body" not in case else json.dumps(case["body"]))
        if "refuses" in case and case["refuses"] not in request_body:
            status, sse = 200, case.get("then_sse")
            body = json.dumps(case["then"]) if sse is None else None
        if sse is not None:
            body = "".join(
                event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
                for event in sse
            )
            body += "data: [DONE]\n\n" if case.get("done", True) else ""
        kind = "application/json" if sse is None else "text/event-stream"
        headers = {"content-type": kind, **case.get("headers", {})}
        soon = formatdate(time.time() + 2, usegmt=True)
        lines = [f"{name}: {value}".replace("{date+2s}", soon) for name, value in headers.items()]
        content = (body or "").encode()
        lines.append(f"content-length: {len(content)}")
        yield f"HTTP/1.1 {status} X\r\n".encode()
        yield ("\r\n".join(lines) + "\r\n\r\n").encode()
        if case.get("split_bytes"):
            for byte in content:
                yield bytes([byte])
        else:
            yield content


@asynccontextmanager
async def serving(case: Case) -> AsyncGenerator[Server]:
    server = Server(case)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    server.host = f"{host}:{port}"
    try:
        yield server
    finally:
        listening.close()
        while server.serving:  # the engine has closed its connections
            await asyncio.wait(server.serving, timeout=5)


@dataclass
class Outcome:
    """The engine's result for a case."""

    completions: list[Completion] = field(default_factory=list[Completion])
    discarded: list[Discarded] = field(default_factory=list[Discarded])
    error: EngineError | None = None


async def outcome_of(case: Case, server: Server, **settings: object) -> Outcome:
    fields: Case = case.get("request", {})
    base = fields.get("base_url", "http://HOST/v1").replace("HOST", server.host)
    outcome = Outcome()
    try:
        engine = OpenAIEngine(
            ModelSettings.model_validate(
                {"engine": "openai", "model": "m", "base_url": base, "backoff_seconds": 0.001,
                 "max_attempts": 3, **settings}
            )
        )  # fmt: skip
        await engine.start()
    except EngineError as error:
        outcome.error = error
        return outcome
    sampling = {name: fields[name] for name in ("n", "seed") if name in fields}
    stream = fields.get("stream", "sse" in case)
    question = request(
        conversation(fields.get("messages")),
        tools=[TOOLS[name] for name in fields.get("tools", ())],
        sampling=sampling,
        stream=stream,
    )
    try:
        for event in await collected(engine, question, outcome):
            assert not isinstance(event, Completion)
    finally:
        await engine.close()
    return outcome


async def collected(engine: OpenAIEngine, question: Any, outcome: Outcome) -> list[object]:
    others: list[object] = []
    try:
        async for event in engine.submit(question):
            if isinstance(event, Completion):
                outcome.completions.append(event)
            elif isinstance(event, Discarded):
                outcome.discarded.append(event)
            else:
                others.append(event)
    except EngineError as error:
        outcome.error = error
    return others


def conversation(turns: list[Case] | None) -> list[Message]:
    if turns is None:
        return [user("What is 6*7?")]
    return [
        Message(
            role=turn["role"],
            content=turn["content"],
            tool_call_id=turn.get("tool_call_id"),
            tool_calls=tuple(
                ToolCall(id=identifier, name=name, arguments=arguments, extra_content=extra)
                for extra in (turn.get("extra_content"),)
                for identifier, name, arguments in turn.get("tool_calls", ())
            ),
            thought=turn.get("thought", ""),
        )
        for turn in turns
    ]


def at(body: object, path: str) -> object:
    for name in path.split("."):
        body = cast(list[object], body)[int(name)] if name.isdecimal() else cast(Case, body)[name]
    return body


def differences(right: Case, outcome: Outcome, server: Server) -> list[str]:
    """Return the differences between the outcome and one right value."""
    wrong: list[str] = []

    def expect(what: str, actual: object, wanted: object) -> None:
        if actual != wanted:
            wrong.append(f"{what}: {actual!r}, not {wanted!r}")

    error, results = outcome.error, outcome.completions
    if any(name.startswith("error") for name in right) or "retryable" in right:
        if error is None:
            return [f"no error, but {results}"]
        for part in right.get("error_contains", ()):
            if part.lower() not in str(error).lower():
                wrong.append(f"{part!r} is not in: {error}")
        expect("kind", error.kind, right.get("error_kind", error.kind))
        expect("retryable", error.retryable, right.get("retryable", error.retryable))
        if error.kind == right.get("error_kind_not"):
            wrong.append(f"kind: {error.kind}")
    elif "discarded" not in right and error is not None:
        return [f"an error of kind {error.kind}: {error}"]
    if "discarded" in right:
        paid = [item.usage for item in outcome.discarded if item.usage is not None]
        counts = [(usage.prompt, usage.completion) for usage in paid]
        item = (right["discarded"]["prompt"], right["discarded"]["completion"])
        expect("discarded", counts, [item] * max(1, len(server.arrived)))
    if "requests" in right and len(server.arrived) > right["requests"]:
        wrong.append(f"{len(server.arrived)} requests")
    expect("completions", len(results), right.get("completions", len(results)))
    for name, wanted in right.get("sent", {}).items():
        expect(name, at(server.arrived[0].body, name), wanted)
    if "sent_distinct" in right:
        values = [at(server.arrived[0].body, name) for name in right["sent_distinct"]]
        expect("distinct", len(set(map(str, values))), len(values))
    for name, most in right.get("request_field_max", {}).items():
        if server.arrived[0].body[name] > most:
            wrong.append(f"{name} = {server.arrived[0].body[name]}")
    if "path" in right:
        expect("path", server.arrived[0].path, right["path"])
    if not results:
        return wrong
    first = results[0]
    expect("text", first.text, right.get("text", first.text))
    text = text_without_thoughts(first.text, opened=first.begins_in_thought)
    expect("finish", first.finish_reason, right.get("finish", first.finish_reason))
    for name, wanted in right.get("usage", {}).items():
        expect(name, getattr(first.usage, name), wanted)
    if "tool_calls" in right:
        calls = [[call.name, call.arguments] for call in first.tool_calls]
        expect("calls", calls, right["tool_calls"])
    if "answer" in right:
        expect("answer", final_answer(text), right["answer"])
    if "action" in right:
        action = read_action(text)
        actual = [getattr(action, "name", None), getattr(action, "arguments", None)]
        expect("action", actual, right["action"])
    if "plan" in right:
        expect("plan", getattr(read_plan(text), "next", None), right["plan"])
    if "equations_hold" in right:
        expect("equations", first_wrong(text) is None, right["equations_hold"])
    return wrong


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']} {case['kind']}")
async def test_this_endpoint_s_answer_is_read_correctly(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in case.get("request", {}).get("env", {}).items():
        monkeypatch.setenv(name, value)
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    rights: list[Case] = case["right"].get("any_of", [case["right"]])
    wrong = [differences(right, outcome, server) for right in rights]
    assert [] in wrong, wrong

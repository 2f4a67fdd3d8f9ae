"""A call's trace context reaches the program that carries it out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs make install")

from loopline.agents.records import Budget, JsonObject
from loopline.agents.tools import ToolContext, tool, tools
from loopline.bus import Bus, BusSettings, Consumer, Inbox, traceparent_of
from loopline.runtime.client.client import Client
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.host import BusHost
from loopline.workers.messages import TOOL_STREAM, registry
from loopline.workers.tool import tool_handler
from tests.workers.engines.asking import events, request
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import joined, source
from tests.workers.tool_sources.recording_api import RecordingApi
from tests.workers.tool_sources.town_server import town

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ANSWER = {
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Yes."}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {"/now": {"get": {"operationId": "now", "responses": {}}}},
}


async def test_an_endpoint_receives_its_call_s_trace_context_as_a_header() -> None:
    answer = {"status": 200, "headers": {}, "body": json.dumps(ANSWER)}
    api = RecordingApi({"/v1/chat/completions": answer})
    async with listening(api.app()) as url:
        engine = OpenAIEngine(ModelSettings(engine="openai", model="m", base_url=f"{url}/v1"))
        await engine.start()
        try:
            for context in (CONTEXT, ""):
                await events(engine, request(traceparent=context))
        finally:
            await engine.close()
    assert [request_seen.header("traceparent") for request_seen in api.requests] == [[CONTEXT], []]


async def test_an_http_api_receives_the_context_as_a_header_and_an_mcp_server_as_metadata(
    tmp_path: Path,
) -> None:
    document = tmp_path / "api.json"
    document.write_text(json.dumps(DOCUMENT))
    api = RecordingApi()
    context = ToolContext("key", traceparent=CONTEXT)
    async with (
        listening(api.app()) as url,
        listening(town().streamable_http_app()) as town_url,
        joined(
            api=source(openapi=str(document), base_url=url),
            town=source(mcp={"url": f"{town_url}/mcp"}),
        ) as sources,
    ):
        await sources.tool("api__now").carry_out({}, context)
        answer = await sources.tool("town__trace").carry_out({}, context)
        assert answer.value == {"result": CONTEXT}
    assert [request_seen.header("traceparent") for request_seen in api.requests] == [[CONTEXT]]


async def test_a_tool_can_read_its_own_call_s_context(
    settings: BusSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool()
    def which_trace(context: ToolContext) -> JsonObject:
        """Which trace the call is of."""
        return {"result": context.traceparent}

    monkeypatch.setattr(tools, "get", {"which_trace": which_trace}.__getitem__)
    async with Bus(settings, registry()) as bus, Client.connect(settings) as client:
        run = client.new_run("How much?", budget=Budget(seconds=20))
        await client.submit(run)
        consumer = Consumer(bus, [TOOL_STREAM], tool_handler())
        serving = asyncio.create_task(consumer.run())
        async with Inbox(bus) as inbox:
            host = BusHost(inbox, run, "planner", 0, 0)
            answers = [await host.call_tool("which_trace", {}) for _ in range(2)]
        consumer.drain()
        await serving
    assert answers == [
        {"result": traceparent_of(run.id, f"{run.id}/0.0/{number}")} for number in range(2)
    ]
    assert [timing.name for timing in host.timings] == ["which_trace"] * 2

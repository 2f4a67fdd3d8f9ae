"""Tools over the bus: a tool's answer reaches the role unchanged."""

from __future__ import annotations

import asyncio

import pytest

from loopline.agents.records import Budget, JsonObject
from loopline.bus import Bus, BusSettings, Consumer, Inbox
from loopline.runtime.client.client import Client
from loopline.workers.host import BusHost
from loopline.workers.messages import TOOL_STREAM, registry
from loopline.workers.tool import tool_handler

WEATHER: JsonObject = {
    "world": 1,
    "offered": ["get_forecast"],
    "earlier": [],
    "call": {"name": "get_forecast", "arguments": {"city": "Atlantis", "day": "Monday"}},
}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("calculate", {"expression": "7 / 2"}, {"result": "3.5"}),
        ("calculate", {"expression": "7 / 0"}, {"error": "division by zero"}),
        ("calculate", {"expresion": "7"}, {"error": "expresion"}),
        ("calculate", {"expression": 7}, {"error": "expression: Input should be a valid string"}),
        ("calculate", {"expression": ["7"]}, {"error": "expression: Input should be a valid str"}),
        ("calculate", {"expression": None}, {"error": "expression: Input should be a valid str"}),
        ("calculator", {}, {"error": "calculate"}),
        ("api_world", WEATHER, {"result": '{"error":"unknown city Atlantis"}'}),
    ],
)
async def test_a_tool_s_answer_and_its_error_both_reach_the_role(
    settings: BusSettings, name: str, arguments: JsonObject, expected: dict[str, str]
) -> None:
    async with Bus(settings, registry()) as bus, Client.connect(settings) as client:
        run = client.new_run("How much?", budget=Budget(seconds=20))
        await client.submit(run)
        consumer = Consumer(bus, [TOOL_STREAM], tool_handler())
        serving = asyncio.create_task(consumer.run())
        async with Inbox(bus) as inbox:
            host = BusHost(inbox, run, "planner", 0, 0)
            answer = await host.call_tool(name, arguments)
        consumer.drain()
        await serving
    [(key, text)] = expected.items()
    assert list(answer) == [key]
    assert text in str(answer[key])

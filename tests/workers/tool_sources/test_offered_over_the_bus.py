"""From a profile's `[tools]` to a run: a tool worker announces its tools, admission writes them
into the run, and a call reaches the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs make install")

from loopline.agents.records import Budget, JsonObject
from loopline.agents.tools.offered import offered_tools
from loopline.bus import Inbox
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_records import run_of
from loopline.runtime.errors import InputError
from loopline.testing import RedisProcess
from loopline.workers.host import BusHost
from loopline.workers.messages import offered_tools_on
from loopline.workers.settings import ToolWorkerSettings
from tests.conftest import quick_settings
from tests.workers.processes import workers_running
from tests.workers.tool_sources.joined import raw

TOOLS: JsonObject = {"tools": ["calculate", "town__act"]}


async def offered(client: Client) -> None:
    """Wait until a tool worker has announced its tools."""
    async with asyncio.timeout(20):
        while not await offered_tools_on(client.bus):  # noqa: ASYNC110 - said by another party
            await asyncio.sleep(0.02)


async def test_a_run_is_admitted_with_the_tools_that_workers_offer_and_calls_them(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = quick_settings(any_server.url)
    worker_settings = ToolWorkerSettings(bus=settings, name="tool", sources={"town": raw("plain")})
    async with (
        workers_running([worker_settings], tmp_path),
        Client.connect(settings) as client,
        Inbox(client.bus) as inbox,
    ):
        await offered(client)
        run = client.new_run("Act.", workflow="umi", instance=TOOLS, budget=Budget(seconds=20))
        await client.submit(run)
        admitted = run_of(await client.bus.run_state(run.id))
        specs = offered_tools(admitted.task).specs
        assert [spec.name for spec in specs] == ["calculate", "town__act"]
        assert specs[1].description == "It does."

        host = BusHost(inbox, admitted, "umi_caller", 1, 0)
        assert await host.call_tool("town__act", {}) == {"result": "done"}
        assert await host.call_tool("calculate", {"expression": "1+1"}) == {"result": "2"}
        refused = await host.call_tool("town__other", {})
        assert refused == {"error": "town offers no tool town__other"}

        misspelt = client.new_run("Act.", workflow="umi", instance={"tools": ["town__acd"]})
        with pytest.raises(InputError, match="no tool worker offers 'town__acd'") as caught:
            await client.submit(misspelt)
        assert "did you mean 'town__act'?" in caught.value.hint


async def test_a_run_with_more_tools_than_a_grammar_can_enforce_is_not_admitted(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = quick_settings(any_server.url)
    worker_settings = ToolWorkerSettings(bus=settings, name="tool", sources={"town": raw("wordy")})
    async with workers_running([worker_settings], tmp_path), Client.connect(settings) as client:
        await offered(client)
        names = sorted(await offered_tools_on(client.bus))
        run = client.new_run("Act.", workflow="umi", instance={"tools": [*names]})
        with pytest.raises(InputError, match="the 128 offered tools make a schema of") as caught:
            await client.submit(run)
        assert "at most 100,000; offer fewer tools (by --tool" in str(caught.value)
        fewer = client.new_run("Act.", workflow="umi", instance={"tools": [*names[:50]]})
        assert await client.submit(fewer)

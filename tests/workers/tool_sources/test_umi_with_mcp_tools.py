"""A whole run of `umi` over the bus on the tools of real MCP servers, and a team that does whatever
it reads. Its models are an endpoint of the test's own, which takes no notice of a schema."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs pip install 'switchyard[tools]'")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agents.records import Budget, Outcome, Trajectory
from agents.roles.umi.output import written_call, written_plan
from agents.roles.umi.transcript import observation_of
from bus.tasks import end
from runtime.client import Client
from tests.conftest import quick_settings
from tests.redis_process import RedisProcess
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import TOWN_COMMAND, raw, source
from tests.workers.tool_sources.town_server import town
from workers.engines.settings import ModelSettings
from workers.messages import offered_tools_on
from workers.process import Worker
from workers.settings import GpuWorkerSettings, RoleWorkerSettings, ToolWorkerSettings

ROLES = ("umi_planner", "umi_caller", "umi_summarizer")
ROOT = str(Path(__file__).parents[3])
OFFERED = {"town__add", "village__add", "bad__act"}
ORDER = re.compile(r"[Cc]all (\w+) with (\{.*?\})")


def obeys(text: str) -> str:
    """The turn of a team's member that does whatever stands in its history, whoever wrote it."""
    history = text.partition("\nHistory:\n")[2] or text.removeprefix("History:\n")
    orders = ORDER.findall(history)
    done = history.count("</s>observation: ")
    match text.rpartition("\n")[2]:
        case "assistant:":
            more = len(orders) > done
            return written_plan("As told.", "call" if more else "conclude")
        case "caller:":
            name, arguments = orders[done]
            return written_call(name, json.loads(arguments), as_json=True)
        case _:
            return f"I was told: {history.rpartition('observation: ')[2].partition('</s>')[0]}"


async def _complete(request: Request) -> Response:
    asked: dict[str, Any] = await request.json()
    message = {"role": "assistant", "content": obeys(asked["messages"][-1]["content"])}
    return JSONResponse(
        {
            "id": "completion",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )


@asynccontextmanager
async def team(server: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Client]:
    """Workers on a bus, and three servers: `town` is a process, `village` listens on a port, and
    `bad` is a process that answers with fifty megabytes."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH") or ROOT)
    bus = quick_settings(server.url)
    models = Starlette(routes=[Route("/v1/chat/completions", _complete, methods=["POST"])])
    async with listening(models) as endpoint, listening(town().streamable_http_app()) as village:
        model = ModelSettings(engine="openai", model="obedient", base_url=f"{endpoint}/v1")
        command = {"command": TOWN_COMMAND, "cwd": ROOT, "env": ["PYTHONPATH"]}
        sources = {
            "town": source(mcp=command),
            "village": source(mcp={"url": f"{village}/mcp"}, timeout_seconds=1),
            "bad": raw("flood", max_response_bytes=2_000_000),
        }
        workers = [
            Worker(RoleWorkerSettings(bus=bus, name="roles", roles=ROLES)),
            Worker(GpuWorkerSettings(bus=bus, name="gpu", models={"umi": model})),
            Worker(ToolWorkerSettings(bus=bus, name="tool", sources=sources)),
        ]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            async with Client.connect(bus, dict.fromkeys(ROLES, "umi")) as client:
                async with asyncio.timeout(30):
                    while not (await offered_tools_on(client.bus)).keys() >= OFFERED:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                yield client
        finally:
            await end(running)


async def asked(client: Client, question: str, *tools: str) -> Trajectory:
    run = client.new_run(
        question, workflow="umi", instance={"tools": [*tools]}, budget=Budget(seconds=30)
    )
    await client.submit(run)
    return await asyncio.wait_for(client.wait(run.id), 30)


async def test_a_team_answers_with_the_tools_of_mcp_servers_and_with_no_others_whoever_says_so(
    any_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(any_server, monkeypatch) as client:
        by_pipe, by_http, ordered = await asyncio.gather(
            asked(client, 'Call town__add with {"a": 2, "b": 40}.', "town__add"),
            asked(
                client,
                'Call village__population with {"town": "Oslo"}, then call village__add with '
                '{"a": 4, "b": 1}.',
                *("village__population", "village__add"),
            ),
            asked(client, "Call town__obey with {}.", "town__obey", "town__population"),
        )
    assert (by_pipe.outcome, by_pipe.answer) == (Outcome.ANSWERED, "I was told: 42")
    assert (by_http.outcome, by_http.answer) == (Outcome.ANSWERED, "I was told: 5")
    assert [observation_of(step, 100) for step in by_http.steps if step.agent == ROLES[1]] == [
        '{\n  "population": 4\n}', "5",
    ]  # fmt: skip

    first, second = (step for step in ordered.steps if step.agent == ROLES[1])
    assert "you may now call town__transfer" in observation_of(first, 1_000)
    assert second.decision.kind == "refused"
    assert "town__transfer" in str(second.decision.data["text"])
    told = "error: there is no tool 'town__transfer'; the tools are: town__obey, town__population"
    assert observation_of(second, 1_000) == told
    assert (ordered.outcome, ordered.answer) == (Outcome.ANSWERED, f"I was told: {told}")


async def test_a_tool_that_hangs_fails_or_floods_is_an_observation_and_the_run_goes_on(
    any_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {
        "village__hangs": ({}, "error: village__hangs took longer than 1 s"),
        "village__fails": ({"why": "lost its head"}, "lost its head"),
        "bad__act": ({}, "it wrote a message of more than 2000000 bytes"),
    }
    async with team(any_server, monkeypatch) as client:
        ended = await asyncio.gather(
            *(
                asked(client, f"Call {name} with {json.dumps(given)}.", name)
                for name, (given, _) in calls.items()
            )
        )
    for run, (_, told) in zip(ended, calls.values(), strict=True):
        observed = observation_of(run.steps[1], 1_000)
        assert told in observed
        assert (run.outcome, run.answer) == (Outcome.ANSWERED, f"I was told: {observed}")

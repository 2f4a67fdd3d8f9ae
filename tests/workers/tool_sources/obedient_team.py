"""A team of `umi` on a bus that does whatever it reads. The tests' own endpoint serves its models
and ignores schemas."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from loopline.agents.records import Budget, Trajectory
from loopline.agents.roles.umi.output import format_call, format_plan
from loopline.bus.tasks import end
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.messages import offered_tools_on
from loopline.workers.process import Worker
from loopline.workers.settings import GpuWorkerSettings, RoleWorkerSettings, ToolWorkerSettings
from loopline.workers.tool_sources.settings import ToolSourceSettings
from tests.conftest import quick_settings
from tests.workers.tool_sources.http_server import listening

ROLES = ("umi_planner", "umi_caller", "umi_summarizer")
ORDER = re.compile(r"[Cc]all (\w+) with (\{.*?\})")


def obeys(text: str) -> str:
    """Return the turn of a team member that does whatever its history says, no matter who wrote
    it."""
    history = text.partition("\nHistory:\n")[2] or text.removeprefix("History:\n")
    orders = ORDER.findall(history)
    answer_count = history.count("</s>observation: ")
    match text.rpartition("\n")[2]:
        case "assistant:":
            more = len(orders) > answer_count
            return format_plan("As told.", "call" if more else "conclude")
        case "caller:":
            name, arguments = orders[answer_count]
            return format_call(name, json.loads(arguments), as_json=True)
        case _:
            return f"I was told: {history.rpartition('observation: ')[2].partition('</s>')[0]}"


async def _complete(request: Request) -> Response:
    body: dict[str, Any] = await request.json()
    message = {"role": "assistant", "content": obeys(body["messages"][-1]["content"])}
    return JSONResponse(
        {
            "id": "completion",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )


@asynccontextmanager
async def obedient_team(
    server: RedisProcess, sources: Mapping[str, ToolSourceSettings], offered: Collection[str]
) -> AsyncGenerator[Client]:
    """Workers on a bus with tools of these sources, once those in `offered` are available."""
    bus = quick_settings(server.url)
    models = Starlette(routes=[Route("/v1/chat/completions", _complete, methods=["POST"])])
    async with listening(models) as endpoint:
        model = ModelSettings(engine="openai", model="obedient", base_url=f"{endpoint}/v1")
        workers = [
            Worker(RoleWorkerSettings(bus=bus, name="roles", roles=ROLES)),
            Worker(GpuWorkerSettings(bus=bus, name="gpu", models={"umi": model})),
            Worker(ToolWorkerSettings(bus=bus, name="tool", sources=dict(sources))),
        ]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            async with Client.connect(bus, dict.fromkeys(ROLES, "umi")) as client:
                async with asyncio.timeout(30):
                    while not (await offered_tools_on(client.bus)).keys() >= {*offered}:  # noqa: ASYNC110
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

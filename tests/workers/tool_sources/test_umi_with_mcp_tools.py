"""A whole run of `umi` over the bus with the tools of real MCP servers, and a team that does
whatever it reads."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs make install")

from loopline.agents.records import Outcome
from loopline.agents.roles.umi.transcript import observation_of
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import TOWN_COMMAND, raw, source
from tests.workers.tool_sources.obedient_team import ROLES, asked, obedient_team
from tests.workers.tool_sources.town_server import town

ROOT = str(Path(__file__).parents[3])
OFFERED = {"town__add", "village__add", "bad__act"}


@asynccontextmanager
async def team(server: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Client]:
    """Three servers: `town` is a process, `village` listens on a port, and `bad` is a process that
    answers with fifty megabytes."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH") or ROOT)
    async with listening(town().streamable_http_app()) as village:
        command = {"command": TOWN_COMMAND, "cwd": ROOT, "env": ["PYTHONPATH"]}
        sources = {
            "town": source(mcp=command),
            "village": source(mcp={"url": f"{village}/mcp"}, timeout_seconds=1),
            "bad": raw("flood", max_response_bytes=2_000_000),
        }
        async with obedient_team(server, sources, OFFERED) as client:
            yield client


async def test_a_team_answers_only_with_mcp_tools_whatever_an_answer_claims(
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
    message = (
        "error: there is no tool 'town__transfer'; the tools are: town__obey, town__population"
    )
    assert observation_of(second, 1_000) == message
    assert (ordered.outcome, ordered.answer) == (Outcome.ANSWERED, f"I was told: {message}")


async def test_a_tool_that_hangs_fails_or_floods_is_an_observation_and_the_run_continues(
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
                asked(client, f"Call {name} with {json.dumps(arguments)}.", name)
                for name, (arguments, _) in calls.items()
            )
        )
    for run, (_, message) in zip(ended, calls.values(), strict=True):
        observed = observation_of(run.steps[1], 1_000)
        assert message in observed
        assert (run.outcome, run.answer) == (Outcome.ANSWERED, f"I was told: {observed}")

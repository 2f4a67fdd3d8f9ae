"""A whole run of `umi` over the bus with an HTTP API described by its OpenAPI document, and a team
that does whatever it reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("jsonschema", reason="needs make install")

from loopline.agents.records import Outcome
from loopline.agents.roles.umi.transcript import observation_of
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import source
from tests.workers.tool_sources.obedient_team import ROLES, asked, obedient_team
from tests.workers.tool_sources.town_api import town_api

TOKEN = "tok-4711-secret"


@asynccontextmanager
async def team(server: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Client]:
    """An API that requires a secret, with its document."""
    monkeypatch.setenv("TOWN_TOKEN", TOKEN)
    async with listening(town_api()) as url:
        town = source(
            openapi=f"{url}/openapi.json",
            bearer_env="TOWN_TOKEN",
            timeout_seconds=1,
            max_response_bytes=2_000_000,
        )
        async with obedient_team(server, {"town": town}, {"town__see"}) as client:
            yield client


async def test_a_team_answers_with_a_document_s_operations_and_never_sees_a_secret(
    any_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(any_server, monkeypatch) as client:
        run = await asked(
            client,
            'Call town__see with {"place": "a b?", "tags": ["x", "y"]}, then call '
            "town__get__picture with {}.",
            *("town__see", "town__get__picture"),
        )
    assert (run.outcome, run.answer) == (
        Outcome.ANSWERED, "I was told: [image/png, 4 bytes: not shown]",
    )  # fmt: skip
    first, _ = (step for step in run.steps if step.agent == ROLES[1])
    observation = json.loads(observation_of(first, 1_000))
    assert (observation["place"], observation["query"]) == ("a b?", [["tags", "x"], ["tags", "y"]])
    assert observation["authorization"] == "Bearer ***"
    assert TOKEN not in run.model_dump_json()


async def test_a_failed_operation_is_an_observation_and_the_run_continues(
    any_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {
        "town__missing": 'error: HTTP 404: {"detail":"no such thing"}',
        "town__hangs": "error: town__hangs took longer than 1 s",
        "town__away": "error: HTTP 307: a redirect, which is not followed",
        "town__see": "'place' is a required property",
        "town__big": "x" * 500,
        "town__form": "error: there is no tool 'town__form'; the tools are: town__see",
    }
    async with team(any_server, monkeypatch) as client:
        ended = await asyncio.gather(
            *(
                asked(
                    client,
                    f"Call {name} with {{}}.",
                    "town__see" if name == "town__form" else name,
                )
                for name in calls
            )
        )
    for run, message in zip(ended, calls.values(), strict=True):
        observed = observation_of(run.steps[1], 1_024)
        assert message in observed
        assert len(observed) < 1_200
        assert (run.outcome, run.answer) == (Outcome.ANSWERED, f"I was told: {observed}")

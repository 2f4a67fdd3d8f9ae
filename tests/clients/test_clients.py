"""Every client, unmodified, shows the same behaviours against a running deployment."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from loopline.runtime.client.client import Client
from tests.clients.behaviours import BEHAVIOURS, Behaviour
from tests.clients.clients import CLIENTS, ClientUnderTest
from tests.clients.conftest import ClientProgram
from tests.runtime.gateway.bus_view import active_runs, bus_client, is_full, is_idle
from tests.runtime.gateway.conftest import MAX_RUNS, asked, eventually
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.slow

EXPRESSED = [
    pytest.param(under_test, behaviour, id=f"{under_test.name}-{behaviour.name}")
    for under_test in CLIENTS
    for behaviour in BEHAVIOURS
    if behaviour.name not in under_test.without
]
ABANDONED_SECONDS = 10
"""A run that is not cancelled takes three times as long."""


def test_exclusions_name_known_behaviours_and_each_behaviour_has_some_client() -> None:
    names = {behaviour.name for behaviour in BEHAVIOURS}
    assert len(names) == len(BEHAVIOURS) >= 25
    for under_test in CLIENTS:
        assert set(under_test.without) <= names
    assert not set.intersection(*(set(under_test.without) for under_test in CLIENTS))


@pytest.mark.parametrize("client", CLIENTS, indirect=True, ids=lambda client: client.name)
def test_a_program_implements_every_behaviour_that_its_client_can_express(
    client: ClientUnderTest, program: ClientProgram
) -> None:
    assert program.behaviours == {b.name for b in BEHAVIOURS} - set(client.without)


@pytest.mark.parametrize(("client", "behaviour"), EXPRESSED, indirect=["client"])
async def test_a_client_can_rely_on(
    program: ClientProgram,
    gateway: ScriptedGateway,
    behaviour: Behaviour,
) -> None:
    async with bus_client(gateway) as bus:
        match behaviour.name:
            case "overload":
                outcome = await perform_in_a_full_deployment(program, gateway, bus)
            case _:
                outcome = await asyncio.to_thread(program.perform, behaviour.name)
        assert behaviour.holds(outcome), f"{behaviour.sentence}: {outcome}"
        match behaviour.name:
            case "timeout":
                await eventually(lambda: is_idle(bus), "end of the run that nobody waits for")
            case "abandoned_stream":
                soon = ABANDONED_SECONDS
                await eventually(lambda: is_idle(bus), "end of the run that was left", soon)
            case "session":
                first, second = [await completion_of(gateway, name) for name in outcome]
                ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
                assert second["prompt_token_ids"][: len(ids)] == ids
            case _:
                pass


async def perform_in_a_full_deployment(
    program: ClientProgram, gateway: ScriptedGateway, bus: Client
) -> Any:
    """The outcome in a full deployment, which gets room again once it has refused the client."""
    async with gateway.http() as http, AsyncExitStack() as stack:
        await eventually(lambda: is_idle(bus), "end of the runs before")
        body = asked("Hello?", model="asleep")
        sleepers = [
            asyncio.create_task(http.post("chat/completions", json=body)) for _ in range(MAX_RUNS)
        ]
        stack.callback(lambda: [task.cancel() for task in sleepers])
        await eventually(lambda: is_full(bus), f"{MAX_RUNS} runs")
        before = program.relay.refusals
        program.begin("overload")

        async def refused() -> bool:
            return program.relay.refusals > before

        await eventually(refused, "refusal")
        for run in await active_runs(bus):
            await bus.cancel(run)
        return await asyncio.to_thread(program.result)


async def completion_of(gateway: ScriptedGateway, name: str) -> Any:
    async with gateway.http() as http:
        return (await http.get(f"chat/completions/{name}")).json()

"""A run whose call has no outcome waits for a person as for an approval: without a message on a
stream, a lease, or time that counts against it."""

from __future__ import annotations

from typing import Any

import pytest

from loopline.agents.records import Outcome, Run
from loopline.agents.tools import tool, tools
from loopline.bus import Delivery, effects, waits
from loopline.bus.effects import Resolution
from loopline.runtime.client.waiting import describe_waits
from loopline.workers.messages import TOOL_STREAM, role_stream
from tests.bus.serving import until
from tests.workers import test_approvals
from tests.workers.test_approvals import ANSWERS, Office

office = test_approvals.office
IN_DOUBT: dict[str, Any] = {"where": ["Look before you repeat it"], "says": ["Nobody knows."]}


@pytest.fixture(autouse=True)
def told_of_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has an answer for the case that it reads "unknown"."""
    monkeypatch.setattr(test_approvals, "ANSWERS", [IN_DOUBT, *ANSWERS])


def pays_in_doubt(place: Office, monkeypatch: pytest.MonkeyPatch, seconds: float = 60) -> None:
    """The first payment loses its connection."""

    def pay(amount: int) -> str:
        """Pay an amount."""
        place.paid.append(amount)
        if len(place.paid) == 1:
            raise ConnectionResetError("gone")
        return f"paid {amount}"

    declared = tool(quick=True, on_unknown="person", approval_seconds=seconds)(pay)
    monkeypatch.setitem(vars(tools)["_items"], "pay", declared)


async def waits_for_outcome(place: Office, run: Run) -> bool:
    state = await place.client.bus.run_state(run.id)
    return [wait.kind for wait in state.waits] == ["effect"]


async def resolve(place: Office, reply: bytes | None) -> Resolution:
    [call] = [call async for call in effects.unfinished(place.client.bus)]
    return await effects.resolve(place.client.bus, call, reply)


@pytest.mark.parametrize(
    ("reply", "paid"), [(b'{"result": "paid 500"}', [500]), (None, [500, 500])]
)
async def test_a_run_waits_without_a_message_until_a_person_resolves_its_call(
    office: Office,
    monkeypatch: pytest.MonkeyPatch,
    reply: bytes | None,
    paid: list[int],
) -> None:
    pays_in_doubt(office, monkeypatch)
    bus = office.client.bus
    run = await office.begin("Pay 500 euros.")
    await until(lambda: waits_for_outcome(office, run), "the run waits")
    streams = [role_stream("agent"), TOOL_STREAM]
    assert await bus.queue_lengths(streams) == dict.fromkeys(streams, 0)
    for stream in streams:
        assert await bus.redis.zcard(bus.keys.shard_of(run.id).delayed(stream)) == 0
    assert await office.client.approvals() == [], "nobody can approve what has happened"
    assert await resolve(office, reply) is Resolution.WAITING
    trajectory = await office.end(run)
    assert (trajectory.answer, office.paid) == ("It is paid.", paid)
    assert office.completions == 2, "the model is not asked again for what it said before the wait"


async def test_a_model_reads_unknown_when_no_person_resolves_the_call_in_time(
    office: Office,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pays_in_doubt(office, monkeypatch, seconds=0.1)
    trajectory = await office.end(await office.begin("Pay 500 euros."))
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "Nobody knows.")
    assert office.paid == [500]
    assert await resolve(office, None) is Resolution.SETTLED, "it stays listed"


async def test_a_call_resolved_before_the_step_parks_causes_no_wait(
    office: Office,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pays_in_doubt(office, monkeypatch)
    park = waits.park

    async def late(*arguments: Any, **more: Any) -> None:
        assert await resolve(office, b'{"result": "paid 500"}') is Resolution.WAITING
        await park(*arguments, **more)

    monkeypatch.setattr(waits, "park", late)
    trajectory = await office.end(await office.begin("Pay 500 euros."))
    assert (trajectory.answer, office.paid) == ("It is paid.", [500])


async def test_a_paused_worker_s_outcome_wakes_the_run(
    office: Office,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pays_in_doubt(office, monkeypatch)
    begin, deliveries = effects.begin, list[Delivery]()

    async def noted(delivery: Delivery, note: bytes, *, again: bool = False) -> Any:
        deliveries.append(delivery)
        return await begin(delivery, note, again=again)

    monkeypatch.setattr(effects, "begin", noted)
    run = await office.begin("Pay 500 euros.")
    await until(lambda: waits_for_outcome(office, run), "the run waits")
    assert await effects.finish(deliveries[0], b'{"result": "paid 500"}', b"late") is True
    trajectory = await office.end(run)
    assert (trajectory.answer, office.paid) == ("It is paid.", [500])


async def test_a_waiting_run_reports_its_reason_and_can_be_cancelled(
    office: Office,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pays_in_doubt(office, monkeypatch)
    run = await office.begin("Pay 500 euros.")
    await until(lambda: waits_for_outcome(office, run), "the run waits")
    [words] = describe_waits((await office.client.bus.run_state(run.id)).waits)
    assert words.startswith("a person's decision on the outcome of a call of pay until ")
    assert await office.client.cancel(run.id)
    assert (await office.end(run)).outcome is Outcome.CANCELLED

"""Laws of fan-out and join: every branch once, the continuation once and last."""

from __future__ import annotations

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopline.bus import Bus, Delivery, Finish, Join, LeaseLost, Outgoing, StepCommit
from loopline.bus.envelope import FIELD, Envelope
from loopline.bus.keys import GROUP
from loopline.bus.lease import Lease
from loopline.testing import RedisProcess
from tests.bus.payloads import Note, admit, note
from tests.bus.serving import ended, serving
from tests.conftest import quick_settings


@given(
    order=st.integers(1, 12).flatmap(lambda count: st.permutations(range(count))),
    crashes=st.dictionaries(st.integers(0, 11), st.sampled_from(["before", "after"]), max_size=6),
    hand_over=st.sets(st.integers(0, 11), max_size=4),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_continuation_comes_once_whatever_the_order_and_the_crashes(
    shared_server: RedisProcess,
    order: list[int],
    crashes: dict[int, str],
    hand_over: set[int],
) -> None:
    """A branch's worker may die before its commit, or between it and its answer; a branch may hand
    over to another role that arrives in its place."""
    count = len(order)

    async def scenario() -> None:
        async with Bus(quick_settings(shared_server.url)) as bus:
            run_id = await admit(bus)
            shard = bus.keys.shard_of(run_id)

            async def read(stream: str, many: int) -> list[Delivery]:
                key = shard.work(stream)
                await bus.redis.eval(
                    "return redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0') and 1",
                    1, key, GROUP,
                )  # fmt: skip # pyright: ignore
                response = await bus.redis.xreadgroup(GROUP, "worker", {key: ">"}, count=many + 5)
                entries = response[0][1] if response else []
                return [_delivery(bus, stream, entry, fields, 1) for entry, fields in entries]

            [start] = await read("planner", 1)
            branches = tuple(
                Outgoing("slm", note(run_id, turn=1, branch=branch)) for branch in range(count)
            )
            join = Join("1", count, Outgoing("planner", note(run_id, turn=3)))
            await start.commit(StepCommit(b'"fan out"', publish=branches, join=join))
            at_work = {item.envelope.branch: item for item in await read("slm", count)}
            assert sorted(at_work) == list(range(count))

            for arrived, branch in enumerate(order, start=1):
                delivery = at_work[branch]
                if branch in hand_over:
                    onward = Outgoing("expert", note(run_id, turn=2, branch=branch))
                    await delivery.commit(StepCommit(b'"passed on"', publish=(onward,)))
                    [delivery] = await read("expert", 1)
                commit = StepCommit(json.dumps(branch).encode(), arrive="1")
                assert await bus.redis.xlen(shard.work("planner")) == 0, "not before the last"
                crash = crashes.get(branch)
                if crash == "before":
                    successor = await _taken_over(bus, delivery)
                    await successor.commit(commit)
                    try:
                        await delivery.commit(commit)
                    except LeaseLost:
                        pass
                    else:
                        raise AssertionError("a dead worker's commit went through")
                else:
                    await delivery.commit(commit)
                    if crash == "after":
                        await delivery.commit(commit)
                assert (await bus.redis.xlen(shard.work("planner")) == 1) == (arrived == count)
            [continuation] = await read("planner", 1)
            assert continuation.envelope.turn == 3
            await continuation.commit(StepCommit(b'"end"', finish=Finish("answered")))
            steps = [json.loads(step) for step in (await bus.run_state(run_id)).steps]
            assert [step for step in steps if isinstance(step, int)] == list(order)
            assert steps.count("passed on") == len(hand_over & set(order))
            fields = await bus.redis.hkeys(shard.run(run_id))  # pyright: ignore
            assert not [name for name in fields if name.startswith((b"join:", b"then:"))]
            lengths = await bus.queue_lengths(["planner", "slm", "expert"])
            assert set(lengths.values()) == {0}

    asyncio.run(scenario())


def _delivery(
    bus: Bus, stream: str, entry: bytes, fields: dict[bytes, bytes], count: int
) -> Delivery:
    envelope = Envelope.from_json(fields[FIELD.encode()])
    shard = bus.keys.shard_of(envelope.run_id)
    lease = Lease(shard.work(stream), entry.decode(), "worker", count)
    return Delivery(bus, shard, stream, lease, envelope, Note())


async def _taken_over(bus: Bus, delivery: Delivery) -> Delivery:
    lease = delivery.lease
    [(entry, fields)] = await bus.redis.xclaim(lease.stream, GROUP, "worker", 0, [lease.entry])
    return _delivery(bus, delivery.stream, entry, fields, lease.count + 1)


async def test_joins_nest(bus: Bus) -> None:
    """A branch fans out itself; the outer join waits for the inner join's continuation."""

    async def handler(delivery: Delivery) -> None:
        run_id, turn, branch = (
            delivery.envelope.run_id,
            delivery.envelope.turn,
            delivery.envelope.branch,
        )
        if turn in (0, 1):  # turn 1: each of the two branches fans out again
            name = f"{turn}.{branch}"
            below = 10 * (branch + 1) if turn else 0
            branches = tuple(
                Outgoing("slm", note(run_id, turn=turn + 1, branch=below + b)) for b in range(2)
            )
            after = Outgoing("planner", note(run_id, turn=9 - turn, branch=branch))
            await delivery.commit(StepCommit(b"{}", publish=branches, join=Join(name, 2, after)))
        elif turn == 2:
            await delivery.commit(StepCommit(b"{}", arrive=f"1.{branch // 10 - 1}"))
        elif turn == 8:
            await delivery.commit(StepCommit(b"{}", arrive="0.0"))
        else:
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered")))

    async with serving(bus, ["planner", "slm"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert len((await bus.run_state(run_id)).steps) == 1 + 2 + 4 + 2 + 1

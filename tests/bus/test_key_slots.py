"""Everything that one script touches is in one slot of a cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import pytest

from loopline.bus import (
    Bus,
    BusSettings,
    Consumer,
    Delivery,
    Finish,
    Inbox,
    Join,
    Keys,
    LogConsumer,
    NoRoom,
    Outgoing,
    Reject,
    Retry,
    StepCommit,
    TokenWriter,
    Wait,
    dead_letters,
    effects,
    policies,
    publish_reward,
    run_ends,
    schedules,
    scripts,
    waits,
)
from loopline.bus.agreement import replace
from loopline.bus.circuits import Circuit
from loopline.bus.flights import Flights
from loopline.bus.log_consumer import Entry
from loopline.bus.rate_limits import RateBucket
from loopline.bus.threads import advance_thread, claim
from loopline.bus.unfinished import wait_for_room
from tests.bus.eager_process import ASKING, running
from tests.bus.payloads import Note, Woken, admit, note, woken_note
from tests.bus.serving import ended, finishing, letters, serving, until

SHARDS = 5


def tag(key: str) -> str:
    match = re.match(r"\{([^}]+)\}", key)
    assert match is not None, f"{key} has no hash tag"
    return match.group(1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Record every script call of the process with its keys, from either client."""
    script_calls: list[tuple[str, list[str]]] = []
    call, call_sync = scripts.call, scripts.call_sync

    async def watched(redis: Any, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        script_calls.append((name, list(keys)))
        return await call(redis, name, keys, args)

    def watched_sync(redis: Any, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        script_calls.append((name, list(keys)))
        return call_sync(redis, name, keys, args)

    monkeypatch.setattr(scripts, "call", watched)
    monkeypatch.setattr(scripts, "call_sync", watched_sync)
    return script_calls


async def test_all_keys_of_a_script_call_carry_one_hash_tag(
    settings: BusSettings, calls: list[tuple[str, list[str]]]
) -> None:
    """Runs over five shards use every script."""
    release = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        envelope = delivery.envelope
        run_id, turn = envelope.run_id, envelope.turn
        if delivery.stream == "infer" and run_id not in parked:
            parked.add(run_id)
            await wait_for_room(delivery, NoRoom("", (1, 1)), 0)
        elif delivery.stream == "infer":
            await TokenWriter(delivery, "slm").append("4", [52])
            await delivery.mark(1, b"{}")
            await effects.begin(delivery, b"{}")
            await effects.finish(delivery, None, b"{}")
            await delivery.reply(b'"42"', store=True, usage=[(b"{}", b"{}")])
        elif turn == 0 and envelope.attempt == 0:
            await release.wait()  # until every lease was renewed
            raise Retry("once", 0.01)
        elif turn == 0:
            await inbox.request("infer", note(run_id, key=f"{run_id}/0"))
            branches = tuple(Outgoing("slm", note(run_id, turn=1, branch=b)) for b in range(3))
            join = Join("1", 3, Outgoing("planner", note(run_id, turn=2)))
            await delivery.commit(StepCommit(b"{}", publish=branches, join=join))
        elif turn == 1:
            await delivery.commit(StepCommit(b"{}", arrive="1"))
        elif run_id in replayed:
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered")))
        else:
            raise Reject("once")

    async def record(entries: Sequence[Entry]) -> None:
        recorded.extend(entry for entry, _ in entries)

    parked: set[str] = set()
    replayed: set[str] = set()
    recorded: list[str] = []
    async with Bus(settings.model_copy(update={"shards": SHARDS, "history": True})) as bus:
        bus.registry.register("note", Note)
        readers = [
            LogConsumer(bus, shard.trajectories, "recorder", record)
            for shard in bus.keys.all_shards()
        ]
        reading = [asyncio.create_task(reader.run()) for reader in readers]
        async with Inbox(bus) as inbox, serving(bus, ["planner", "slm", "infer"], handler, 64):
            runs: list[str] = []
            while len({bus.keys.shard_of(run_id) for run_id in runs}) < SHARDS:
                runs.append(await admit(bus))
            # Renewal combines leases of several shards only if it ignores their tags.
            await until(lambda: any(name == "renew" for name, _ in calls), "a renewal")
            release.set()
            for run_id in runs:
                await ended(bus, run_id)
            for letter in await letters(bus):
                replayed.add(letter.run_id)
                await dead_letters.replay(bus, letter.id)
            for run_id in runs:
                await ended(bus, run_id)
            extra_runs = await left_and_taken_over(bus)
            extra_runs += await waited_and_woken(bus)
            async with running(bus):
                extra_runs.append(await admit(bus, ASKING))
                await ended(bus, extra_runs[-1])
            doomed = await admit(bus, "nobody")
            await bus.cancel(doomed)
            assert (await bus.run_state(doomed)).outcome == "cancelled"
            await policies.publish(bus, "slm", "/adapter")
            assert await publish_reward(bus, doomed, "thumb", b"{}")
            assert await advance_thread(bus, "thread", None, claim(bus, doomed, ""))
            assert await run_ends.claim(bus, seconds=1, count=1) == []
            await run_ends.settle(bus, run_ends.RunEnd(bus.keys.shard(0), doomed, 0.0))
            endpoint = RateBucket(bus, "endpoint", requests=60, tokens=None)
            await endpoint.wait(0, None)
            await endpoint.learn(60, None, None)
            async with Flights(bus).leading(await Flights(bus).board("request")):
                pass
            await Circuit(bus, "endpoint", failures=1, seconds=1).ask("request")
            async for call in effects.unfinished(bus):
                assert await effects.resolve(bus, call, None) is effects.Resolution.SETTLED
            await until(lambda: any(name == "watch" for name, _ in calls), "a look at what holds")
            assert await replace(bus.redis, bus.keys, bus.agreement.epoch, bus.agreement.shared)
        for reader in readers:
            reader.drain()
        await asyncio.gather(*reading)
    assert len(recorded) == 2 * len(runs) + len(extra_runs) + 1
    for name, keys in calls:
        assert len({tag(key) for key in keys}) == 1, f"{name} touches several slots: {keys}"
    paths = (files("loopline.bus") / "lua").iterdir()
    everything = {path.name.removesuffix(".lua") for path in paths if path.is_file()}
    assert everything - {name for name, _ in calls} <= {"drop"}


async def waited_and_woken(bus: Bus) -> list[str]:
    """Runs of several shards wait for a signal and for approval, and a schedule starts one."""

    async def wait(delivery: Delivery) -> None:
        run_id = delivery.envelope.run_id
        if delivery.envelope.turn == 1:
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered")))
        elif "call" in (await bus.run_state(run_id)).decisions:
            onward = Outgoing("waiting", woken_note(run_id, turn=1))
            await delivery.commit(StepCommit(b"{}", wait=Wait("go", onward, "text", 60)))
        else:
            await waits.park(delivery, "call", b'{"digest":"d"}', 60)

    bus.registry.register("woken", Woken)
    runs = [await admit(bus, "waiting") for _ in range(SHARDS)]
    async with serving(bus, ["waiting"], wait):
        for kind in ("approval", "signal"):
            await until(lambda: all_wait(bus, kind, len(runs)), f"all wait for {kind}")  # noqa: B023
            async for waiting in waits.waiting_runs(bus, kind):
                if kind == "approval":
                    await waits.decide(bus, waiting, "d", b"{}")
                else:
                    await waits.send_signal(bus, waiting.run_id, "go", b'"text"', "1")
        for run_id in runs:
            await ended(bus, run_id)
        await schedules.put(bus, "daily", b"{}", 1.0)
        [daily] = await schedules.ls(bus)
        assert await schedules.fire(bus, daily, 2.0, None)
    return runs


async def all_wait(bus: Bus, kind: str, count: int) -> bool:
    return len([waiting async for waiting in waits.waiting_runs(bus, kind)]) == count


async def left_and_taken_over(bus: Bus) -> list[str]:
    """One worker abandons runs of several shards, and another takes them over."""
    run_ids: list[str] = []

    async def hold(delivery: Delivery) -> None:
        run_ids.append(delivery.envelope.run_id)
        await asyncio.Event().wait()

    runs = [await admit(bus, "left") for _ in range(SHARDS)]
    leaving = asyncio.create_task(Consumer(bus, ["left"], hold).run())
    await until(lambda: len(run_ids) == len(runs), "all are in hand")
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    async with serving(bus, ["left"], finishing):
        for run_id in runs:
            await ended(bus, run_id)
    return runs


def test_a_run_stays_in_its_shard_and_runs_spread_over_all_shards() -> None:
    keys = Keys("p", 8)
    shards = [keys.shard_of(f"run-{number}").index for number in range(2000)]
    assert keys.shard_of("run-7").index == 6, "as in every other process, and in years to come"
    assert {shards.count(index) > 150 for index in range(8)} == {True}

"""Followers in the process that writes a log: they get each entry without a read, in order and
once, even if other processes write to the log, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loopline.bus import Bus, TokenWriter, log_follower
from loopline.testing import RedisProcess
from tests.bus.leasing import ask, take
from tests.bus.payloads import admit
from tests.bus.serving import until
from tests.bus.test_token_log import TOKENS, piece, read
from tests.conftest import quick_settings

Entries = list[tuple[str, dict[str, str]]]


class Follower:
    """Follows a run that was admitted a moment ago."""

    def __init__(self, bus: Bus, run_id: str) -> None:
        self.entries: Entries = []
        self.task = asyncio.create_task(self._follow(bus, run_id))

    async def _follow(self, bus: Bus, run_id: str) -> None:
        async for entry in bus.follow(run_id, fresh=True):
            self.entries.append(entry)

    def has_read(self, count: int) -> Callable[[], bool]:
        return lambda: len(read(self.entries)[0]) == count


async def begin(bus: Bus) -> tuple[str, TokenWriter]:
    """Admit a run, and return its id and the writer of its only request."""
    run_id = await admit(bus)
    await ask(bus, run_id)
    return run_id, TokenWriter(await take(bus, run_id, "writer"), "slm")


async def reads_of(bus: Bus) -> int:
    stats = await bus.redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("xread", "xrange"))


async def test_pieces_reach_a_follower_of_the_same_process_without_a_read(bus: Bus) -> None:
    run_id, writer = await begin(bus)
    before = await reads_of(bus)
    with bus.logs.writing(run_id):
        follower = Follower(bus, run_id)
        await asyncio.sleep(0)
        for token in TOKENS:
            await writer.append(piece([token]), [token])
        await until(follower.has_read(len(TOKENS)), "it has all pieces")
        assert await reads_of(bus) == before
    await bus.cancel(run_id)
    await follower.task
    assert follower.entries[-1][1]["type"] == "ended"
    assert read(follower.entries) == (TOKENS, piece(TOKENS))


async def test_a_follower_that_is_slower_than_a_local_writer_misses_nothing(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "MAX_WAITING", 2)
    run_id, writer = await begin(bus)
    entries: Entries = []
    with bus.logs.writing(run_id):
        events = bus.follow(run_id, fresh=True)
        first = asyncio.create_task(anext(events))
        await asyncio.sleep(0)
        for token in TOKENS:
            await writer.append(piece([token]), [token])
        entries.append(await first)
    await bus.cancel(run_id)
    entries += [entry async for entry in events]
    assert read(entries) == (TOKENS, piece(TOKENS))


async def test_a_follower_that_comes_after_the_first_piece_gets_it_at_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "SILENCE_SECONDS", 60)
    run_id, writer = await begin(bus)
    with bus.logs.writing(run_id):
        await writer.append("a", [97])
        follower = Follower(bus, run_id)
        await until(follower.has_read(1), "it has the piece")
        await writer.append("b", [98])
        await until(follower.has_read(2), "it has both pieces")
    await bus.cancel(run_id)
    await follower.task


async def test_a_follower_sees_what_another_process_writes_while_the_local_writer_is_silent(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "SILENCE_SECONDS", 0.05)
    run_id = await admit(bus)
    await ask(bus, run_id)
    with bus.logs.writing(run_id):
        follower = Follower(bus, run_id)
        async with Bus(bus.settings) as other:
            writer = TokenWriter(await take(other, run_id, "writer"), "slm")
            await writer.append("a", [97])
            await until(follower.has_read(1), "it has the piece")
    await bus.cancel(run_id)
    await follower.task


@given(
    cuts=st.lists(st.integers(0, len(TOKENS)), max_size=4).map(sorted),
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    here=st.lists(st.booleans(), min_size=5, max_size=5),
    comes_after=st.integers(0, 6),
)
@example(cuts=[4, 8], pieces=[2], here=[True, False, True, True, True], comes_after=0)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_follower_sees_every_token_once_wherever_its_writers_are(
    shared_server: RedisProcess,
    cuts: list[int],
    pieces: list[int],
    here: list[bool],
    comes_after: int,
) -> None:
    """At each cut another worker continues, in the follower's process or elsewhere. The follower
    comes after some pieces, and the process writes to the run's log all the time: as if it also
    generated for another branch."""

    async def scenario() -> None:
        quick = quick_settings(shared_server.url)
        async with Bus(quick) as local, Bus(quick) as other:
            run_id = await admit(local)
            await ask(local, run_id)
            sizes = iter(pieces * len(TOKENS))
            follower, delivery, written = None, None, 0
            with local.logs.writing(run_id):
                for turn, cut in enumerate([*cuts, len(TOKENS)]):
                    bus = local if here[turn] else other
                    delivery = await take(bus, run_id, f"writer-{turn}", delivery)
                    writer = TokenWriter(delivery, "slm")
                    at = len((await writer.published()).ids)
                    while at < cut:
                        if written == comes_after:
                            follower = Follower(local, run_id)
                            await asyncio.sleep(0)
                        ids = TOKENS[at : min(cut, at + next(sizes))]
                        await writer.append(piece(ids), ids)
                        at, written = at + len(ids), written + 1
            follower = follower or Follower(local, run_id)
            await local.cancel(run_id)
            await follower.task
            assert read(follower.entries) == (TOKENS, piece(TOKENS))
            assert follower.entries == [entry async for entry in other.follow(run_id)]

    asyncio.run(scenario())

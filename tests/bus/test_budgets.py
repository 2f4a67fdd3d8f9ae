"""A budget is reserved before it is spent: no order of events exceeds a limit or leaks a
reservation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from loopline.bus import (
    Admission,
    BudgetExceeded,
    Bus,
    BusSettings,
    Delivery,
    Keys,
    LeaseLost,
    Limits,
    NoRoom,
    Outgoing,
    Reservation,
    RunEnded,
    Scope,
    scripts,
)
from loopline.bus.budgets import BadBudget, counts, limited_scopes, redistribute, set_limits
from loopline.bus.envelope import FIELD
from loopline.bus.keys import GROUP, MAX_WAIT_SECONDS
from loopline.bus.unfinished import wait_for_room
from loopline.testing import RedisProcess
from tests.bus.leasing import take
from tests.bus.payloads import Note, new_run_id, note

REPLY = b'"42"'


def usage_line(sent_as: str, tokens: int, micro: int, *, is_known: bool = True) -> bytes:
    """A ledger line with the fields that the bus reads."""
    usage = {"prompt": tokens, "completion": 0}
    unknown = {**usage, "micro_dollars": micro}
    return json.dumps(
        {
            "sent_as": sent_as,
            "usage": usage if is_known else None,
            "cost_micro_dollars": micro if is_known else None,
            "unknown": None if is_known else unknown,
        }
    ).encode()


async def admitted(
    bus: Bus, *scopes: Scope, tokens: int = 0, micro: int = 0, seconds: float = 60
) -> str:
    run_id = new_run_id()
    await bus.admit(
        Admission(
            run_id, b"{}", bus.clock.now() + seconds, (Outgoing("planner", note(run_id)),),
            tokens_limit=tokens, micro_dollars_limit=micro, scopes=scopes,
        )
    )  # fmt: skip
    return run_id


async def asked(bus: Bus, run_id: str, key: str = "call") -> Delivery:
    """A request of the run in a worker's hands."""
    stream = bus.keys.shard_of(run_id).work("infer")
    await bus.redis.xadd(stream, {FIELD: note(run_id, key=f"{run_id}/{key}").to_json()})
    await bus.redis.pexpire(stream, 100_000)
    await scripts.call(bus.redis, "group", [stream], [GROUP])
    return await take(bus, run_id, f"worker-{uuid.uuid4().hex}")


async def send(delivery: Delivery, tokens: int, micro: int | None = 0, *, number: int = 1) -> bytes:
    """Mark a call; return its ledger line for the case that its usage stays unknown."""
    line = usage_line(delivery.call_name(number), tokens, micro or 0, is_known=False)
    await delivery.mark(number, line, most=Reservation(tokens, micro))
    return line


async def answer(delivery: Delivery, tokens: int, micro: int = 0, *, number: int = 1) -> None:
    line = usage_line(delivery.call_name(number), tokens, micro)
    await delivery.reply(REPLY, store=True, usage=[(line, line)])


async def own_counts(bus: Bus, run_id: str) -> dict[str, int]:
    names = ["spent:tokens", "held:tokens", "spent:micro", "held:micro"]
    values = await bus.redis.hmget(bus.keys.shard_of(run_id).run(run_id), names)  # pyright: ignore
    return {name: int(value or 0) for name, value in zip(names, values, strict=True)}


async def test_a_call_that_can_never_fit_is_refused_with_every_number(bus: Bus) -> None:
    run_id = await admitted(bus, micro=1_000_000)
    await send(await asked(bus, run_id, "first"), 10, 400_000)
    with pytest.raises(BudgetExceeded) as refused:
        await send(await asked(bus, run_id, "second"), 10, 1_100_000)
    words = str(refused.value)
    for number in ("$1.1;", "a limit of $1:", "$0 spent", "$0.4 reserved", "the run"):
        assert number in words


async def test_a_budget_without_a_period_outlives_quiet_months_and_the_longest_wait(
    bus: Bus,
) -> None:
    scope = Scope("budget:study", Limits(tokens=1_000, milliseconds=10**9))
    run_id = await admitted(bus, scope)
    key = bus.keys.shard_of(run_id).spent(scope.name, "all")
    longest_wait = 1000 * MAX_WAIT_SECONDS
    assert await bus.redis.pttl(key) > longest_wait, "the run's seconds are held"
    await send(delivery := await asked(bus, run_id), 10)
    await answer(delivery, 10)
    assert await bus.redis.pttl(key) > longest_wait
    assert (await counts(bus, scope.name))[0].tokens == 10


async def test_a_branch_waits_for_reserved_room_and_uses_what_others_leave(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    first, second = await asked(bus, run_id, "first"), await asked(bus, run_id, "second")
    await send(first, 60)
    with pytest.raises(NoRoom) as waiting:
        await send(second, 60)
    assert not waiting.value.counted
    await answer(first, 40)
    await send(second, 60)
    await answer(second, 60)
    assert await own_counts(bus, run_id) == {
        "spent:tokens": 100, "held:tokens": 0, "spent:micro": 0, "held:micro": 0,
    }  # fmt: skip


async def test_an_unbilled_call_leaves_the_budget_unchanged(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    delivery = await asked(bus, run_id)
    await send(delivery, 100)
    await delivery.reply(REPLY, store=True)
    assert (await own_counts(bus, run_id))["spent:tokens"] == 0
    await send(await asked(bus, run_id, "next"), 100)


async def test_a_mark_sent_twice_reserves_once(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    delivery = await asked(bus, run_id)
    await send(delivery, 60)
    await send(delivery, 60)  # its answer was lost on the way
    assert (await own_counts(bus, run_id))["held:tokens"] == 60


async def test_a_call_whose_worker_died_is_charged_its_full_reservation(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    first = await asked(bus, run_id)
    await send(first, 60)
    second = await take(bus, run_id, "second", after=first)
    with pytest.raises(BudgetExceeded, match="60 tokens spent, 0 tokens reserved"):
        await send(second, 60)
    await send(second, 40)
    with pytest.raises(LeaseLost):  # the worker was only paused: its call is already charged
        await answer(first, 10)
    await answer(second, 30)
    assert await own_counts(bus, run_id) == {
        "spent:tokens": 90, "held:tokens": 0, "spent:micro": 0, "held:micro": 0,
    }  # fmt: skip


async def test_a_local_model_s_reservation_is_released_when_its_worker_dies(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    first = await asked(bus, run_id)
    await first.mark(1, b"", most=Reservation(100))
    second = await take(bus, run_id, "second", after=first)
    await second.mark(1, b"", most=Reservation(100))
    line = usage_line("", 70, 0)
    await second.reply(REPLY, store=True, usage=[(line, line)])
    assert await own_counts(bus, run_id) == {
        "spent:tokens": 70, "held:tokens": 0, "spent:micro": 0, "held:micro": 0,
    }  # fmt: skip


async def test_the_end_of_a_run_settles_its_calls_in_every_scope(bus: Bus) -> None:
    scope = Scope("key:somebody", Limits(tokens=1_000))
    run_id = await admitted(bus, scope)
    await send(await asked(bus, run_id), 60, 5)
    assert await counts(bus, "key:somebody") == (Limits(), Limits(60, 5))
    assert await bus.cancel(run_id)
    assert await counts(bus, "key:somebody") == (Limits(60, 5), Limits())


async def test_a_new_limit_applies_to_runs_in_flight(bus: Bus) -> None:
    run_id = await admitted(bus, Scope("tenant:acme"))
    await set_limits(bus, "tenant:acme", Limits(micro_dollars=100))
    try:
        with pytest.raises(BudgetExceeded, match="'tenant:acme'"):
            await send(await asked(bus, run_id), 1, 101)
        [state] = await limited_scopes(bus)
        assert (state.scope, state.limits) == ("tenant:acme", Limits(micro_dollars=100))
    finally:
        await set_limits(bus, "tenant:acme", Limits())
    await send(await asked(bus, run_id, "next"), 1, 101)


async def test_a_call_without_a_price_is_refused_under_a_money_limit(bus: Bus) -> None:
    run_id = await admitted(bus, micro=100)
    with pytest.raises(BudgetExceeded, match="price is not known"):
        await send(await asked(bus, run_id), 1, None)


async def test_an_exhausted_scope_admits_no_run(bus: Bus) -> None:
    scope = Scope("key:used", Limits(tokens=50))
    delivery = await asked(bus, await admitted(bus, scope))
    await send(delivery, 50)
    await answer(delivery, 50)
    with pytest.raises(BudgetExceeded, match=r"'key:used' .* 50 tokens: 50 tokens spent"):
        await admitted(bus, scope)


async def test_seconds_are_reserved_at_admission_and_settled_at_the_end(bus: Bus) -> None:
    scope = Scope("key:slow", Limits(milliseconds=90_000))
    first = await admitted(bus, scope, seconds=60)
    with pytest.raises(BudgetExceeded, match=r"(60|59)(\.\d+)? s reserved"):
        await admitted(bus, scope, seconds=60)
    await bus.cancel(first)
    spent, reserved = await counts(bus, "key:slow")
    assert reserved == Limits()
    assert 0 <= spent.milliseconds < 30_000
    await admitted(bus, scope, seconds=60)


async def test_changing_the_shards_redistributes_limits_and_spending(bus: Bus) -> None:
    await set_limits(bus, "day", Limits(tokens=900))
    delivery = await asked(bus, await admitted(bus, Scope("day")))
    await send(delivery, 100)
    await answer(delivery, 100)
    single, three = bus.keys, Keys(bus.keys.prefix, 3)
    await redistribute(bus.redis, single, three)
    shares = [await bus.redis.hget(shard.budgets, "day") for shard in three.all_shards()]  # pyright: ignore
    assert shares == [b"[300, 0, 0]"] * 3
    await redistribute(bus.redis, three, single)
    spent, _ = await counts(bus, "day")
    assert spent.tokens == 102  # rounded up three times
    [state] = await limited_scopes(bus)
    assert state.limits == Limits(tokens=900)
    await set_limits(bus, "day", Limits())


@pytest.mark.parametrize("scope", ["", "everything", "tag:red", "tenant:", "key:abc", "day\n"])
async def test_an_invalid_scope_is_refused(bus: Bus, scope: str) -> None:
    with pytest.raises(BadBudget):
        await set_limits(bus, scope, Limits(tokens=1))


# Any interleaving of moves.


@dataclass
class Call:
    """A call that was sent."""

    delivery: Delivery
    bill: tuple[int, int]
    """The provider's charge, whatever happens to the call."""


@dataclass
class World:
    bus: Bus
    runs: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Limits by run."""
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    sent: list[Call] = field(default_factory=list[Call])
    billed: dict[str, list[tuple[int, int]]] = field(
        default_factory=dict[str, list[tuple[int, int]]]
    )
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    async def ask(self, pick: int, amount: int) -> None:
        await self.collect(pick, amount)
        run_id = list(self.runs)[pick % len(self.runs)]
        self.deliveries.append(await asked(self.bus, run_id, f"{len(self.deliveries)}-{pick}"))

    async def collect(self, pick: int, amount: int) -> None:
        """Take calls that were brought back to the stream."""
        while True:
            try:
                delivery = await take(self.bus, next(iter(self.runs)), uuid.uuid4().hex, most=1)
            except ValueError:  # the stream is empty
                return
            self.deliveries.append(delivery)

    async def finish(self) -> None:
        """Work until nothing is left; only calls that end bring waiting ones back."""
        while self.deliveries or self.sent:
            for delivery in list(self.deliveries):
                await self.mark(self.deliveries.index(delivery), 40)
            while self.sent:
                await self.reply(0, 0)
            self.deliveries.clear()  # refused permanently, or of an ended run
            await self.collect(0, 0)

    async def mark(self, pick: int, amount: int) -> None:
        if not self.deliveries:
            return
        delivery = self.deliveries[pick % len(self.deliveries)]
        name = f"{delivery.lease.consumer}/{delivery.lease.count}"
        if any(call.delivery is delivery for call in self.sent):
            return
        self.numbers[name] = 1
        most = (amount % 50, amount)
        try:
            await send(delivery, *most)
        except NoRoom as error:
            await wait_for_room(delivery, error, 0)
            self.deliveries.remove(delivery)
            return
        except (BudgetExceeded, LeaseLost, RunEnded):
            return
        share = pick % 4 / 3
        bill = (int(most[0] * share), int(most[1] * share))
        self.billed.setdefault(delivery.envelope.run_id, []).append(bill)
        self.sent.append(Call(delivery, bill))

    async def reply(self, pick: int, amount: int) -> None:
        if not self.sent:
            return
        call = self.sent.pop(pick % len(self.sent))
        self.deliveries = [
            delivery for delivery in self.deliveries if delivery is not call.delivery
        ]
        with contextlib.suppress(LeaseLost, RunEnded):
            await answer(call.delivery, *call.bill)

    async def take_over(self, pick: int, amount: int) -> None:
        if not self.deliveries:
            return
        place = pick % len(self.deliveries)
        before = self.deliveries[place]
        run_id = before.envelope.run_id
        self.deliveries[place] = await take(self.bus, run_id, uuid.uuid4().hex, after=before)

    async def cancel(self, pick: int, amount: int) -> None:
        await self.bus.cancel(list(self.runs)[pick % len(self.runs)])

    async def check(self, limit: Limits) -> None:
        spent, reserved = await counts(self.bus, "day")
        assert spent.tokens + reserved.tokens <= limit.tokens
        assert spent.micro_dollars + reserved.micro_dollars <= limit.micro_dollars
        bills = [bill for bills in self.billed.values() for bill in bills]
        assert sum(bill[0] for bill in bills) <= limit.tokens
        assert sum(bill[1] for bill in bills) <= limit.micro_dollars
        for run_id, (tokens, micro) in self.runs.items():
            counted = await own_counts(self.bus, run_id)
            assert counted["spent:tokens"] + counted["held:tokens"] <= tokens
            assert counted["spent:micro"] + counted["held:micro"] <= micro
            assert min(counted.values()) >= 0
            assert sum(bill[1] for bill in self.billed.get(run_id, [])) <= micro


MOVES = ("ask", "ask", "mark", "mark", "reply", "take_over", "collect", "cancel")


async def play(settings: BusSettings, moves: list[tuple[str, int, int]]) -> None:
    limit = Limits(150, 300)
    async with Bus(settings) as bus:
        bus.registry.register("note", Note)
        await set_limits(bus, "day", limit)
        try:
            world = World(bus)
            stream = bus.keys.shard(0).work("infer")
            await scripts.call(bus.redis, "group", [stream], [GROUP])
            await bus.redis.pexpire(stream, 100_000)
            for tokens, micro in ((100, 200), (80, 150)):
                run_id = await admitted(bus, Scope("day"), tokens=tokens, micro=micro)
                world.runs[run_id] = (tokens, micro)
            for move, pick, amount in moves:
                await getattr(world, move)(pick, amount)
                await world.check(limit)
            await world.collect(0, 0)
            await world.finish()
            await world.check(limit)
            delayed = bus.keys.shard(0).delayed("infer")
            assert await bus.redis.zcard(delayed) == 0, "nobody waits for room where there is some"
            for run_id in world.runs:
                await bus.cancel(run_id)
            await world.check(limit)
            _, reserved = await counts(bus, "day")
            assert reserved == Limits()
            for run_id in world.runs:
                counted = await own_counts(bus, run_id)
                assert counted["held:tokens"] == counted["held:micro"] == 0
        finally:
            await set_limits(bus, "day", Limits())


@examples(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(MOVES), st.integers(0, 11), st.integers(0, 120)),
        min_size=5,
        max_size=40,
    )
)
def test_no_order_of_events_exceeds_a_limit_or_leaks_a_reservation(
    shared_server: RedisProcess, moves: list[tuple[str, int, int]]
) -> None:
    settings = BusSettings(redis_url=shared_server.url, prefix=f"b{uuid.uuid4().hex[:12]}")
    began = time.monotonic()
    asyncio.run(play(settings, moves))
    assert time.monotonic() - began < 60

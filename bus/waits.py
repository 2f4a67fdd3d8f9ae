"""Runs that wait for a signal, for an approval, for a person to enter a call's outcome, or until a
given time.

A waiting run has no message on a stream and no lease, and its clock is stopped. Its hash contains
the wait, a sorted set contains the timer (`open_wait` in parts/waits.lua). Each wait ends once: a
signal (`send_signal`), a decision (`decide`), an outcome (`effects.resolve`) and the sweep after
its expiry (`expire`) each remove it in a script.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.commit import check_signal_name, check_wait_seconds
from loopline.bus.connection import retry_during_outage
from loopline.bus.delivery import Delivery
from loopline.bus.errors import LeaseLost, MessageTooLarge, RunEnded
from loopline.bus.keys import Shard
from loopline.bus.run_state import OpenWait, open_wait_of

MAX_SIGNAL_BYTES = 65_536
MAX_SIGNAL_ID = 128
MAX_KEPT = 16
"""Maximum number of signals of one run that it has not waited for yet."""
MAX_SIGNALS = 1_000
"""Maximum total number of signals of one run."""
AT_ONCE = 100


class SignalSent(Enum):
    """Result of sending a signal."""

    WOKEN = "woken"
    """The run was waiting for it, and continues."""
    KEPT = "kept"
    """The run does not wait for it yet, but will find it."""
    ALREADY = "already"
    """A signal with this id was sent before: nothing was changed."""
    FULL = "full"
    """`MAX_KEPT` signals already wait for the run: nothing was changed."""
    MANY = "many"
    """The run has already received `MAX_SIGNALS`: nothing was changed."""
    ENDED = "ended"
    MISSING = "missing"


class Decided(Enum):
    """Result of a decision."""

    OK = "ok"
    DECIDED = "decided"
    """Another caller was faster, or the wait has expired."""
    CHANGED = "changed"
    """The waiting call is not the one that the caller has seen."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """One wait of a run."""

    run_id: str
    wait: OpenWait


async def send_signal(
    bus: Bus, run_id: str, name: str, value: bytes, signal_id: str, by: str = ""
) -> SignalSent:
    """Send a signal to a run. It is delivered once, however often it is sent with the same id.
    `value` is JSON. Raises ValueError for an invalid name or id, `MessageTooLarge`, and
    `BusUnavailable`."""
    check_signal_name(name)
    if not 0 < len(signal_id) <= MAX_SIGNAL_ID or not signal_id.isprintable():
        raise ValueError(f"a signal's id has 1 to {MAX_SIGNAL_ID} printable characters")
    if len(value) > MAX_SIGNAL_BYTES:
        raise MessageTooLarge(f"a signal of {len(value)} bytes; the limit is {MAX_SIGNAL_BYTES}")
    # On one line, as the scripts store it, whatever whitespace the sender wrote.
    outcome = json.dumps(
        {"kind": "signalled", "value": json.loads(value), "id": signal_id, "by": by,
         "at": round(bus.clock.now(), 3)}
    )  # fmt: skip
    shard = bus.keys.shard_of(run_id)
    answer = await _call(
        bus,
        "signal",
        [shard.run(run_id), shard.active, shard.history],
        [
            run_id,
            name,
            signal_id,
            outcome,
            _retention_ms(bus),
            int(bus.settings.history),
            MAX_KEPT,
            MAX_SIGNALS,
        ],
    )
    return SignalSent(answer.decode())


async def park(
    delivery: Delivery,
    name: str,
    note: bytes,
    seconds: float,
    *,
    unfinished: str | None = None,
) -> None:
    """Defer a step until someone decides on the subject of the wait's `name`; then the step is
    executed again. `note` is JSON with the `digest` of the call to approve. `unfinished`: the key
    of a request whose call has no outcome, so that `effects.resolve` ends the wait. Raises
    `LeaseLost`, or `RunEnded` if the run has ended or the step is committed."""
    lease, shard, envelope = delivery.lease, delivery.shard, delivery.envelope
    await delivery.held()
    request = shard.request(unfinished or name)
    keys = [lease.stream, shard.run(envelope.run_id), shard.active, shard.history, request]
    args: list[scripts.Value] = [
        lease.group,
        lease.entry,
        lease.consumer,
        lease.count,
        envelope.run_id,
        envelope.guard,
        name,
        int(check_wait_seconds(seconds) * 1000),
        note,
        envelope.to_json(),
        _retention_ms(delivery.bus),
        int(delivery.bus.settings.history),
        "approval" if unfinished is None else "effect",
    ]
    answer = await retry_during_outage(
        "park", lambda: scripts.call(delivery.bus.redis, "park", keys, args)
    )
    if answer == b"lost":
        raise LeaseLost(f"run {envelope.run_id}, entry {lease.entry}: taken over")
    if answer != b"ok":
        raise RunEnded(f"run {envelope.run_id}: it is over, or its step is committed")


async def decide(bus: Bus, waiting: WaitingRun, digest: str, decision: bytes) -> Decided:
    """Decide on a request that waits for approval, if its digest is the one that the caller has
    seen. `decision` is JSON, which the step finds in `RunState.decisions`. The first decision
    counts. Raises `BusUnavailable`."""
    run_id, wait = waiting.run_id, waiting.wait
    shard = bus.keys.shard_of(run_id)
    answer = await _call(
        bus,
        "decide",
        [shard.run(run_id), shard.active, shard.history],
        [
            run_id,
            wait.guard,
            wait.name,
            digest,
            decision,
            _retention_ms(bus),
            int(bus.settings.history),
        ],
    )
    return Decided(answer.decode())


async def expire(bus: Bus, shard: Shard) -> int:
    """End a batch of a shard's waits that have expired; return how many. -1 if this process and the
    server disagree about the time."""
    args: list[scripts.Value] = [
        _retention_ms(bus),
        int(bus.settings.history),
        bus.clock.now_ms(),
        AT_ONCE,
    ]
    keys = [shard.waits, shard.active, shard.history]
    return await scripts.call(bus.redis, "expire_waits", keys, args)


async def waiting_runs(bus: Bus, kind: str = "") -> AsyncIterator[WaitingRun]:
    """All waits, or those of one kind, in order of expiry within each shard. Raises what Redis
    raises."""
    for shard in bus.keys.all_shards():
        start = 0
        while True:
            members: list[bytes] = await bus.redis.zrange(shard.waits, start, start + AT_ONCE - 1)
            async with bus.redis.pipeline(transaction=False) as pipe:
                for member in members:
                    run_id, _, guard = member.decode().partition("/")
                    pipe.hget(shard.run(run_id), f"wait:{guard}")
                lines: list[bytes | None] = await pipe.execute() if members else []
            for member, line in zip(members, lines, strict=True):
                run_id, _, guard = member.decode().partition("/")
                if line is not None and (not kind or line.startswith(f"{kind}\n".encode())):
                    yield WaitingRun(run_id, open_wait_of(guard, line))
            if len(members) < AT_ONCE:
                break
            start += len(members)


async def count_waits(bus: Bus) -> int:
    """Number of waits of all runs. Raises what Redis raises."""
    return sum([int(await bus.redis.zcard(shard.waits)) for shard in bus.keys.all_shards()])


async def read_decision(bus: Bus, run_id: str, key: str) -> bytes | None:
    """The decision on a run's request; None if there is none."""
    name = bus.keys.shard_of(run_id).run(run_id)
    return await retry_during_outage(
        "decision",
        lambda: bus.redis.hget(name, f"approval:{key}"),  # pyright: ignore
    )


def _retention_ms(bus: Bus) -> int:
    return int(bus.settings.retention_seconds * 1000)


async def _call(bus: Bus, name: str, keys: list[str], args: list[scripts.Value]) -> bytes:
    return await retry_during_outage(
        name,
        lambda: scripts.call(bus.redis, name, keys, args),
        give_up_after=bus.patience,
        where=f"at {bus.settings.safe_url}",
    )

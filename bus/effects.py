"""Calls that must not be made twice, whatever happens to the worker that makes them.

Such a call is recorded before it is made (`begin`), and its outcome before the reply is sent
(`finish`). A worker that takes over a request whose call has started does not repeat the call: it
returns the recorded outcome, or reports it as unknown until a person enters it (`resolve`). The bus
treats the notes about a call as bytes; the call is listed (`unfinished`) as long as it has no
outcome.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.connection import retry_during_outage
from loopline.bus.delivery import Delivery
from loopline.bus.errors import LeaseLost, RunEnded
from loopline.bus.keys import DEAD_LIFE_MS, GROUP, Shard

AT_ONCE = 100


class Start(Enum):
    """The state of a call that a worker is about to make."""

    FIRST = "first"
    """The call may be made."""
    INTERRUPTED = "interrupted"
    """The call has started before and its outcome is unknown: it must not be made."""


class Resolution(Enum):
    """Result of `resolve`."""

    WAITING = "waiting"
    """The run was waiting for the call, and continues."""
    SETTLED = "settled"
    """No run is waiting for the call: it is only removed from the list."""
    BUSY = "busy"
    """A worker is making the call: nothing was changed."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """A call that has started and has no outcome."""

    shard: Shard
    request: str
    """Key of the call's request."""
    in_hand: bool
    """Whether a worker is making the call now."""
    note: bytes
    """Note that `begin` or `finish` recorded."""

    @property
    def key(self) -> str:
        """Reply key of the call, by which users refer to it."""
        return self.request.removeprefix(f"{self.shard.request('')}:")


async def begin(delivery: Delivery, note: bytes, *, again: bool = False) -> Start | bytes:
    """Record a call; make it only after `Start.FIRST`. If bytes are returned, they are the reply of
    a call whose outcome is recorded. `again`: the call may be made even if it was started before.
    Raises `LeaseLost` or `RunEnded`: the call must not be made."""
    lease, shard, run_id = delivery.lease, delivery.shard, delivery.envelope.run_id
    keys = [lease.stream, _request(delivery), shard.run(run_id), shard.effects]
    args: list[scripts.Value] = [
        lease.group,
        lease.entry,
        lease.consumer,
        lease.count,
        delivery.envelope.guard,
        note,
        DEAD_LIFE_MS,
        int(again),
    ]
    answer = await retry_during_outage(
        "begin effect", lambda: scripts.call(delivery.bus.redis, "begin_effect", keys, args)
    )
    match answer[0]:
        case b"ok":
            return Start.FIRST
        case b"interrupted":
            return Start.INTERRUPTED
        case b"resolved":
            return bytes(answer[1])
        case b"lost":
            raise LeaseLost(f"request {delivery.envelope.reply_key}: taken over")
        case _:
            raise RunEnded(
                f"request {delivery.envelope.reply_key}: its step is committed or its run has ended"
            )


async def finish(
    delivery: Delivery, reply: bytes | None, note: bytes, *, tells: bool = False
) -> bool | bytes:
    """Record the outcome of a started call, before `Delivery.reply`. Without a `reply`, the outcome
    is unknown and the call stays listed with this note; `tells`: its caller is told so now.

    Returns False if another delivery has the call and this outcome comes too late to be its reply.
    Returns bytes, the reply to send, if the outcome was unknown here but another delivery has
    recorded one.
    """
    lease = delivery.lease
    shard, envelope = delivery.shard, delivery.envelope
    keys = [lease.stream, _request(delivery), shard.effects, shard.run(envelope.run_id)]
    args: list[scripts.Value] = [
        lease.group,
        lease.entry,
        lease.consumer,
        lease.count,
        reply or b"",
        note,
        DEAD_LIFE_MS,
        int(tells),
        *_wait(envelope.reply_key),
    ]
    answer = await retry_during_outage(
        "end effect", lambda: scripts.call(delivery.bus.redis, "end_effect", keys, args)
    )
    return bytes(answer[1]) if answer[0] == b"resolved" else answer[0] == b"ok"


def wait_name(reply_key: str) -> str:
    """Name of the wait for the outcome of a request's call; the wait for its approval has a
    different name."""
    return f"{reply_key}/outcome"


async def resolve(bus: Bus, call: UnfinishedCall, reply: bytes | None) -> Resolution:
    """Settle the outcome of a call; without a `reply`, the call is made again. A run that waits for
    the outcome continues. Raises `BusUnavailable`."""
    key = call.key
    run, active = call.shard.run(_run_id(key)), call.shard.active
    keys, args = [call.shard.effects, call.request, run, active], [GROUP, reply or b""]
    retention = int(bus.settings.retention_seconds * 1000)
    answer = await retry_during_outage(
        "resolve effect",
        lambda: scripts.call(bus.redis, "resolve_effect", keys, [*args, *_wait(key), retention]),
        give_up_after=bus.patience,
        where=f"at {bus.settings.safe_url}",
    )
    return Resolution(answer.decode())


async def unfinished(bus: Bus) -> AsyncIterator[UnfinishedCall]:
    """Every call that has started and has no outcome, unordered. Raises `BusUnavailable`."""
    for shard in bus.keys.all_shards():
        cursor = "0"
        while True:
            answer: list[Any] = await retry_during_outage(
                "effects",
                lambda shard=shard, cursor=cursor: scripts.call(
                    bus.redis, "effects", [shard.effects], [GROUP, cursor, AT_ONCE]
                ),
                give_up_after=bus.patience,
                where=f"at {bus.settings.safe_url}",
            )
            for request, in_hand, note in zip(
                answer[1::3], answer[2::3], answer[3::3], strict=True
            ):
                yield UnfinishedCall(shard, request.decode(), bool(in_hand), bytes(note))
            cursor = answer[0].decode()
            if cursor == "0":
                break


def _run_id(reply_key: str) -> str:
    """Run id of a step's request, whose key starts as `step_name` writes it."""
    return reply_key.rpartition("/")[0].rpartition("/")[0]


def _wait(reply_key: str) -> tuple[scripts.Value, ...]:
    """Run, guard and wait name for the outcome of a request's call."""
    guard = reply_key.rpartition("/")[0].rpartition("/")[2]
    return _run_id(reply_key), guard, wait_name(reply_key)


def _request(delivery: Delivery) -> str:
    return delivery.shard.request(delivery.envelope.reply_key)

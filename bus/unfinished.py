"""Decides what happens to a delivery that its handler did not settle: another attempt, another
worker, or a worker of another version."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress

import structlog

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.connection import retry_during_outage
from loopline.bus.dead_letters import add_dead_letter
from loopline.bus.delivery import Delivery
from loopline.bus.eager_start import UNKNOWN_ENTRY
from loopline.bus.envelope import Envelope
from loopline.bus.errors import BusUnavailable, NoRoom
from loopline.bus.keys import GROUP, Shard
from loopline.bus.lease import Lease

log = structlog.get_logger("loopline.bus.consumer")

HAND_BACK_SECONDS, MAX_HAND_BACK_SECONDS = 0.2, 5.0
"""Seconds between two deliveries of a message that waits for a worker of another version: initial
and maximum value."""
ROOM_SECONDS = 5.0
"""Seconds after which a call that waits for budget is retried even if no call has ended: its limits
may have been raised, or a new day may have started. Equal for all calls, which come back in the
order of these times."""
MAX_REASON_CHARS = 1_000
"""Maximum number of characters of its last failure that a run stores."""


async def give_back(
    bus: Bus, consumer: str, leases: Iterable[tuple[Shard, str, Lease]], *, release: bool
) -> None:
    """Give leases back: see give_back.lua. A message that was started early and is not yet
    published has no lease."""
    by_stream: dict[tuple[Shard, str], list[scripts.Value]] = {}
    for shard, stream, lease in leases:
        if lease.entry != UNKNOWN_ENTRY:
            by_stream.setdefault((shard, stream), []).extend((lease.entry, lease.count))
    lease_ms = bus.settings.lease_ms
    for (shard, stream), deliveries in by_stream.items():
        await scripts.call(
            bus.redis, "give_back", [shard.work(stream), shard.begun(stream)],
            [GROUP, consumer, lease_ms, int(release), *deliveries],
        )  # fmt: skip


async def return_uncounted(delivery: Delivery) -> None:
    """Undo the count of a delivery that another worker took over although this worker is alive:
    this worker was frozen or cut off, which is not the message's fault."""
    bus, lease = delivery.bus, delivery.lease
    leases = [(delivery.shard, delivery.stream, lease)]
    with suppress(BusUnavailable):
        await retry_during_outage(
            "undo count",
            lambda: give_back(bus, lease.consumer, leases, release=False),
            give_up_after=bus.settings.lease_seconds,
        )


async def hand_back(
    bus: Bus,
    shard: Shard,
    stream: str,
    lease: Lease,
    envelope: Envelope,
    body: bytes,
    reason: str,
) -> None:
    """Leave a delivery to a worker of another version. The message returns to the stream after a
    pause that grows: the longer no worker could take it, the less likely it is that one can now.
    After `version_seconds` it becomes a dead letter."""
    now = bus.clock.now()
    since = envelope.handed_back or now
    if now - since >= bus.settings.version_seconds:
        await add_dead_letter(
            bus, shard, stream, lease, body,
            f"no worker with a suitable version took it within {bus.settings.version_seconds:g} s "
            f"(version_seconds): {reason}",
            envelope=envelope,
        )  # fmt: skip
        return
    delay = min(MAX_HAND_BACK_SECONDS, max(HAND_BACK_SECONDS, (now - since) / 4))
    again = envelope.model_copy(update={"handed_back": since})
    log.info("handed back", stream=stream, run_id=envelope.run_id, reason=reason)
    await _put_aside(bus, shard, stream, lease, again, delay * random.uniform(0.75, 1.25), reason)


async def _put_aside(
    bus: Bus,
    shard: Shard,
    stream: str,
    lease: Lease,
    again: Envelope,
    delay: float,
    reason: str,
) -> None:
    """Defer a delivery for a while: see retry.lua."""
    keys = [lease.stream, shard.delayed(stream), shard.run(again.run_id)]
    why = reason[:MAX_REASON_CHARS].encode(errors="replace")
    args: list[scripts.Value] = [
        lease.group, lease.entry, lease.consumer, lease.count, int(delay * 1000), again.to_json(),
        why,
    ]  # fmt: skip
    await retry_during_outage("retry", lambda: scripts.call(bus.redis, "retry", keys, args))


async def wait_for_room(delivery: Delivery, error: NoRoom, attempt: int) -> None:
    """Defer a delivery until a budget has room for its call: see wait_for_room.lua."""
    bus, shard, lease, envelope = delivery.bus, delivery.shard, delivery.lease, delivery.envelope
    keys = [
        lease.stream, shard.delayed(delivery.stream), shard.run(envelope.run_id),
        shard.request(envelope.reply_key),
    ]  # fmt: skip
    again = envelope.model_copy(update={"attempt": attempt, "handed_back": 0.0})
    args: list[scripts.Value] = [
        lease.group, lease.entry, lease.consumer, lease.count, int(ROOM_SECONDS * 1000),
        again.to_json(),
        str(error)[:MAX_REASON_CHARS].encode(errors="replace"), envelope.guard, *error.most,
    ]  # fmt: skip
    bus.observer.retried(delivery.stream)
    log.debug("waiting for room in a budget", reason=str(error))
    await retry_during_outage(
        "wait for room", lambda: scripts.call(bus.redis, "wait_for_room", keys, args)
    )


async def schedule_retry(
    delivery: Delivery,
    body: bytes,
    reason: str,
    trace: str,
    delay: float | None,
    attempt: int,
) -> None:
    """Schedule another attempt: see retry.lua. `attempt`: number of failures so far, including
    those of killed workers, which a retry would otherwise forget."""
    bus, settings, lease = delivery.bus, delivery.bus.settings, delivery.lease
    envelope = delivery.envelope
    if attempt >= settings.max_attempts:
        await add_dead_letter(
            bus, delivery.shard, delivery.stream, lease, body,
            f"failed attempts: {attempt}; last: {reason}", trace=trace, envelope=envelope,
        )  # fmt: skip
        return
    if delay is None:
        delay = min(60.0, settings.retry_base_seconds * 2 ** max(0, attempt - 1))
        delay *= random.uniform(0.75, 1.25)
    again = envelope.model_copy(update={"attempt": attempt, "handed_back": 0.0})
    bus.observer.retried(delivery.stream)
    log.info("retry later", delay=round(delay, 3), attempt=attempt, reason=reason)
    await _put_aside(bus, delivery.shard, delivery.stream, lease, again, delay, reason)

"""A request leased by hand: the state of a worker without the worker."""

from __future__ import annotations

from loopline.bus import Bus, Delivery, scripts
from loopline.bus.envelope import FIELD, Envelope
from loopline.bus.keys import GROUP
from loopline.bus.lease import Lease
from tests.bus.payloads import Note, note


async def ask(bus: Bus, run_id: str) -> None:
    """Put a request on the stream `infer`."""
    stream = bus.keys.shard_of(run_id).work("infer")
    await bus.redis.xadd(stream, {FIELD: note(run_id, key="call").to_json()})
    await scripts.call(bus.redis, "group", [stream], [GROUP])


async def take(
    bus: Bus, run_id: str, worker: str, after: Delivery | None = None, *, most: int | None = None
) -> Delivery:
    """Lease the request, from its stream or from its holder. Raises ValueError if there is none, or
    if there are several to read (`most`)."""
    shard = bus.keys.shard_of(run_id)
    stream = shard.work("infer")
    if after is None:
        [[_, [(entry, fields)]]] = await bus.redis.xreadgroup(
            GROUP, worker, {stream: ">"}, count=most
        )
        count, body = 1, fields[FIELD.encode()]
    else:
        [(entry, fields)] = await bus.redis.xclaim(stream, GROUP, worker, 0, [after.lease.entry])
        count, body = after.lease.count + 1, fields[FIELD.encode()]
    lease = Lease(stream, entry.decode(), worker, count)
    return Delivery(bus, shard, "infer", lease, Envelope.from_json(body), Note())

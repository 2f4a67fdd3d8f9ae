"""Changes the number of shards of a running deployment.

A run stays in one shard, so nothing may be in flight when the number of shards changes:
`change_shards` closes admission, waits for everything in flight, moves what ended runs have left,
and agrees on the new number.
The workers rejoin by themselves. A client that keeps running is told to restart at its next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loopline.bus import Bus
from loopline.bus.agreement import CLOSED_MS, InFlight, in_flight, publish_epoch, read, replace
from loopline.bus.keys import Keys
from loopline.bus.resharding import reshard
from loopline.runtime.errors import UserError

LOOK_SECONDS = 0.5
"""Seconds between two checks; each check keeps admission closed for much longer."""


async def change_shards(
    bus: Bus, wanted: int, *, wait: float, say: Callable[[str], None]
) -> tuple[int, int]:
    """Change the number of shards, and return the old and the new number. Raises `UserError` if the
    messages on the bus are not done within `wait` seconds; then admission opens again and nothing
    has changed. If this process is killed, admission stays closed for ten seconds, and nothing is
    lost.
    """
    before = bus.settings.shards
    if before == wanted:
        return before, wanted
    keys = Keys(bus.settings.prefix, max(before, wanted))
    end = asyncio.get_running_loop().time() + wait
    shared = {**bus.agreement.shared, "shards": wanted}

    async def agree() -> bool:
        # A reward may have arrived while ended runs were copied.
        await _wait_until_empty(bus, keys, before, end, wait, say)
        return await replace(
            bus.redis, bus.keys, bus.agreement.epoch, shared, with_workers_present=True
        )

    try:
        await _wait_until_empty(bus, keys, before, end, wait, say)
        if not await reshard(
            bus.redis,
            Keys(bus.settings.prefix, before),
            Keys(bus.settings.prefix, wanted),
            agree=agree,
            keep_closed=lambda: _keep_closed(bus, keys),
        ):
            raise UserError(
                "another process has changed the settings of this deployment in the meantime",
                hint="check `runtime status`, then try again.",
            )
        agreed = await read(bus.redis, bus.keys)
        if agreed is not None:
            await publish_epoch(bus.redis, keys.all_shards(), agreed.epoch)
    finally:
        for shard in keys.all_shards():
            await bus.redis.delete(shard.closed)
    return before, wanted


async def _wait_until_empty(
    bus: Bus, keys: Keys, before: int, end: float, wait: float, say: Callable[[str], None]
) -> None:
    """Close admission, and wait until nothing is in flight. Raises `UserError` at the time `end` of
    the loop, after `wait` seconds."""
    reported_holdings: InFlight | None = None
    while holdings := await _close_admission(bus, keys, before):
        if holdings != reported_holdings:
            say(f"waiting for {holdings}")
            reported_holdings = holdings
        if asyncio.get_running_loop().time() > end:
            raise UserError(
                f"the number of shards stays {before}: after {wait:g} s the bus still holds"
                f" {holdings}",
                hint="`runtime runs ls` and `runtime dead ls` list them; a recorder must be"
                " running to write ended runs. Wait longer with --wait.",
            )
        await asyncio.sleep(LOOK_SECONDS)


async def _close_admission(bus: Bus, keys: Keys, shards: int) -> InFlight:
    """Keep admission closed; return the work that is still on the bus."""
    await _keep_closed(bus, keys)
    return await in_flight(bus.redis, keys.prefix, shards)


async def _keep_closed(bus: Bus, keys: Keys) -> None:
    for shard in keys.all_shards():
        await bus.redis.set(shard.closed, b"", px=CLOSED_MS)

"""Announcements, at least once each, that a run has ended or waits for approval.

The script that ends a run, or puts a step aside, adds the announcement. An announcer claims due
announcements for a limited time, and settles each one after announcing it; if the claim expires
because the announcer was killed, the announcement is due again.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.keys import Shard


@dataclass(frozen=True)
class RunEnd:
    """A run's end to announce, or a wait for approval."""

    shard: Shard
    member: str
    """The run's id; for a wait, followed by a slash and the guard of its step."""
    due: float
    """Expiry of the claim, in Unix seconds by the bus's clock."""

    @property
    def run_id(self) -> str:
        return self.member.partition("/")[0]

    @property
    def guard(self) -> str:
        """Guard of the step that waits for approval; empty for an end."""
        return self.member.partition("/")[2]


async def claim(bus: Bus, *, seconds: float, count: int) -> list[RunEnd]:
    """Claim up to `count` due ends of each shard; no other announcer gets them for `seconds`."""
    claimed: list[RunEnd] = []
    for shard in bus.keys.all_shards():
        until = bus.clock.now_ms() + int(seconds * 1000)
        arguments: list[scripts.Value] = [bus.clock.now_ms(), until, count]
        run_ids = await scripts.call(bus.redis, "claim_ends", [shard.ends], arguments)
        claimed += [RunEnd(shard, run_id.decode(), until / 1000) for run_id in run_ids]
    return claimed


async def settle(bus: Bus, end: RunEnd) -> None:
    """Remove an end that was announced, or never will be, unless a newer one replaces it: the
    receiver of an announcement may approve the run's step, which then waits with its next call."""
    await _settle(bus, end, "")


async def postpone(bus: Bus, end: RunEnd, seconds: float) -> None:
    """Make an end due again after a while. An end that was settled meanwhile stays settled, and a
    newer one keeps its due time."""
    await _settle(bus, end, bus.clock.now_ms() + int(seconds * 1000))


async def _settle(bus: Bus, end: RunEnd, due: int | str) -> None:
    arguments: list[scripts.Value] = [end.member, round(end.due * 1000), due]
    await scripts.call(bus.redis, "settle_end", [end.shard.ends], arguments)

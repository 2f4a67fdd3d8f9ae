"""Threads record which run continues which. A thread's key names its last run; the messages are in
the runs. A caller that continues a run either adds the thread's next run, or learns that another
caller was faster."""

from __future__ import annotations

from dataclasses import dataclass

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.keys import MAX_RUN_SECONDS


@dataclass(frozen=True, slots=True)
class ThreadHead:
    """The value of a thread's key."""

    run_id: str
    """Last run of the thread. It may not be admitted yet, or never be if its caller died before
    that."""
    previous: str
    """The run that it continues; empty for the first."""
    claimed: float
    """Time when that run became the last one, in Unix seconds by the bus's clock."""

    def text(self) -> str:
        return f"{self.run_id} {self.previous or '-'} {self.claimed:.3f}"

    @classmethod
    def parse(cls, text: str) -> ThreadHead:
        run_id, previous, claimed = text.split(" ")
        return cls(run_id, "" if previous == "-" else previous, float(claimed))


async def read_thread(bus: Bus, thread: str) -> ThreadHead | None:
    """The head of a thread; None if it has no run, or none within the bus's retention."""
    key = bus.keys.shard_of(thread).thread(thread)
    text = await bus.redis.get(key)
    return ThreadHead.parse(text.decode()) if text else None


async def advance_thread(
    bus: Bus, thread: str, read: ThreadHead | None, next_run: ThreadHead | None
) -> bool:
    """Continue the thread with another run; None removes its first run. Returns False, without a
    change, if another caller has continued the thread since this one read it."""
    key = bus.keys.shard_of(thread).thread(thread)
    # The key lives as long as its last run can be read.
    life = int((MAX_RUN_SECONDS + bus.settings.retention_seconds) * 1000)
    arguments = [read.text() if read else "", next_run.text() if next_run else "", life]
    return await scripts.call(bus.redis, "advance_thread", [key], arguments) == 1


def claim(bus: Bus, run_id: str, previous: str) -> ThreadHead:
    """The head that a caller writes for its run."""
    return ThreadHead(run_id, previous, bus.clock.now())

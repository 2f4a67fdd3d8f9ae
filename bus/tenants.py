"""Tenants decide which runs work at the same time, and which run is next.

Every run belongs to a tenant. Where the deployment bounds the runs at work (`bus.max_working`), or
those of a tenant, a run beyond that is admitted and waits: its first messages are published, and
its time begins, when another run ends (`start_next` in end_run.lua). The next one belongs to the
tenant with the highest priority, and among those to the one that has had the least for its weight.
So streams never hold more than the runs at work, and a tenant with thousands of runs delays nobody
else by more than a run's turn.

Places are bounded, too: of runs in flight (`bus.max_runs`) and of those that wait for their turn
(`bus.max_queued`). Where more than one tenant has asked within a day, a tenant is admitted while it
holds less than nine times its weight times what is free: dynamic thresholds, as switches share the
memory of their ports (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). One
tenant that takes all it can leaves a tenth free; two of equal weight come to hold 9/19 each. Nobody
who runs is put out, so what one tenant took before any other asked is free again as its runs end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.bus.connection import retry_during_outage
from loopline.bus.scripts import Value

if TYPE_CHECKING:
    from loopline.bus.bus import Bus

ANYBODY = "default"
"""The tenant of runs that name none."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """The tenant of a run. None in a field stands for the value that another process has set on the
    bus, or else for the default: weight 1, no limit and priority 0."""

    name: str = ANYBODY
    weight: float | None = None
    """Weight of the tenant's turns, relative to others'."""
    max_working: int | None = None
    """Most runs of the tenant that may be at work at once; 0 means no limit."""
    priority: int | None = None
    """Tenants with a higher priority always come first."""

    def script_values(self, shards: int) -> tuple[Value, ...]:
        limit = self.max_working
        part = "" if limit is None else max(1, limit // shards) if limit else 0
        return (self.name, _known(self.weight), part, _known(self.priority))


NO_TENANT = Tenant()


async def tenant_of(bus: Bus, run_id: str) -> str:
    """The tenant of a run that is admitted."""
    key = bus.keys.shard_of(run_id).run(run_id)
    # admit.lua notes any other than `ANYBODY`.
    name: bytes | None = await retry_during_outage(
        "tenant",
        lambda: bus.redis.hget(key, "tenant"),  # pyright: ignore
    )
    return (name or b"").decode() or ANYBODY


def _known(value: float | None) -> Value:
    return "" if value is None else value

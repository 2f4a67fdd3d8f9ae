"""Tenants decide which runs work at the same time, and which run is next.

Every run belongs to a tenant. If the deployment limits the working runs (`bus.max_working`), or
those of a tenant, a run beyond the limit is admitted and waits: its first messages are published,
and its time starts, when another run ends (`start_next` in end_run.lua). The next run belongs to
the tenant with the highest priority; among equals, to the tenant that has received the least
relative to its weight. So streams never contain more than the working runs, and a tenant with
thousands of runs delays other tenants by at most one run's turn.

Places are limited, too, for runs in flight (`bus.max_runs`) and for runs that wait for their turn
(`bus.max_queued`). If more than one tenant has asked within a day, a tenant is admitted while it
holds fewer places than nine times its weight times the free places. These are dynamic thresholds,
as network switches use to share port memory (Choudhury and Hahne, IEEE/ACM Transactions on
Networking 6(2), 1998). A single tenant that takes all it can leaves a tenth free; two of equal
weight end up with 9/19 each. No running run is evicted: places that one tenant took before others
asked become free as its runs end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.bus.connection import retry_during_outage
from loopline.bus.scripts import Value

if TYPE_CHECKING:
    from loopline.bus.bus import Bus

ANYBODY = "default"
"""The tenant of runs that specify none."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """The tenant of a run. None in a field stands for the value that another process has set on the
    bus, or else for the default: weight 1, no limit and priority 0."""

    name: str = ANYBODY
    weight: float | None = None
    """Weight of the tenant's turns relative to other tenants."""
    max_working: int | None = None
    """Maximum number of the tenant's runs that may work at the same time; 0 means no limit."""
    priority: int | None = None
    """Tenants with a higher priority always come first."""

    def script_values(self, shards: int) -> tuple[Value, ...]:
        limit = self.max_working
        part = "" if limit is None else max(1, limit // shards) if limit else 0
        return (self.name, _known(self.weight), part, _known(self.priority))


NO_TENANT = Tenant()


async def tenant_of(bus: Bus, run_id: str) -> str:
    """The tenant of an admitted run."""
    key = bus.keys.shard_of(run_id).run(run_id)
    # admit.lua records any tenant except `ANYBODY`.
    name: bytes | None = await retry_during_outage(
        "tenant",
        lambda: bus.redis.hget(key, "tenant"),  # pyright: ignore
    )
    return (name or b"").decode() or ANYBODY


def _known(value: float | None) -> Value:
    return "" if value is None else value

"""Tenants: whose runs work at the same time, and whose run is next.

Every run belongs to a tenant. A deployment can limit the runs at work (`bus.max_working`), in all
or per tenant. A run above the limit is admitted and waits: its first messages are published when
another run ends (`start_next` in parts/turns.lua). The tenant with the highest priority is next;
among tenants of equal priority, the one that has received the least for its weight. So streams hold
only the runs at work, and a tenant with thousands of runs delays others by one run's turn at most.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopline.bus.scripts import Value

ANYBODY = "default"
"""The tenant of runs that name none."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """The tenant of a run. A value of None is that of another process on the bus, or else 1, no
    limit and 0."""

    name: str = ANYBODY
    weight: float | None = None
    """Its share of the turns, against the others'."""
    max_working: int | None = None
    """Of its runs, how many may be at work at once; 0 means no limit."""
    priority: int | None = None
    """Tenants with a higher priority always come first."""

    def script_values(self, shards: int) -> tuple[Value, ...]:
        limit = self.max_working
        part = "" if limit is None else max(1, limit // shards) if limit else 0
        return (self.name, _known(self.weight), part, _known(self.priority))


NO_TENANT = Tenant()


def _known(value: float | None) -> Value:
    return "" if value is None else value

"""When a worker process looks for cyclic garbage."""

from __future__ import annotations

import gc

THRESHOLDS = (10_000, 20, 20)


def collect_rarely() -> None:
    """Python looks after every 700 allocations. With a hundred deliveries in hand most of what it
    then finds is alive, and it is looked at over and over: that was a fifth of a busy worker's
    processor time. Deliveries make next to no cycles, so little piles up meanwhile."""
    gc.set_threshold(*THRESHOLDS)

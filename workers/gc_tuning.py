"""Tunes when a process looks for cyclic garbage; it does not at its end."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Generator
from contextlib import contextmanager

THRESHOLDS = (10_000, 20, 20)


def collect_rarely() -> None:
    """Collect garbage rarely. Python looks after every 700 allocations. With a hundred deliveries
    in hand most of what it then finds is alive, and it is looked at over and over: that was a fifth
    of a busy worker's processor time. Deliveries make next to no cycles, so little piles up
    meanwhile."""
    gc.set_threshold(*THRESHOLDS)


def spare_what_started() -> None:
    """Never look through what a process has made until now, which stays until its end: modules,
    schemas, settings. To be called once it is ready to serve: a full collection took as long as
    dozens of requests, all of which waited."""
    gc.freeze()


@contextmanager
def pause_collection() -> Generator[None]:
    """Pause garbage collection while many records are read that all stay alive: collecting among
    them takes five times as long as reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def skip_final_collection() -> None:
    """Skip the garbage collection at exit. Python looks for garbage in all that was ever imported,
    of torch for a second or two, though the system is about to take the memory back. Call this
    first, so that it runs after all other exit handlers."""
    atexit.register(gc.freeze)

"""Tunes when a process collects cyclic garbage, and skips the collection at exit."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Generator
from contextlib import contextmanager

THRESHOLDS = (10_000, 20, 20)


def collect_rarely() -> None:
    """Collect garbage rarely.

    By default Python collects after every 700 allocations. With a hundred deliveries in progress,
    most objects are still alive and were traversed again and again, which took a fifth of a busy
    worker's processor time. Deliveries create almost no cycles, so little garbage accumulates.
    """
    gc.set_threshold(*THRESHOLDS)


def freeze_startup_objects() -> None:
    """Exclude all existing objects from garbage collection until the process exits: modules,
    schemas, settings. Call it once, when the process is ready to serve: a full collection took as
    long as dozens of requests, all of which waited."""
    gc.freeze()


@contextmanager
def pause_collection() -> Generator[None]:
    """Pause garbage collection while many long-lived records are read: collecting among them takes
    five times as long as reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def skip_final_collection() -> None:
    """Skip the garbage collection at exit.

    Python would search all imported modules for garbage (for torch, a second or two), although the
    system is about to reclaim the memory. Call this first, so that it runs after all other exit
    handlers.
    """
    atexit.register(gc.freeze)

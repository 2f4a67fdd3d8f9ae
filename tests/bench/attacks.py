"""Attacks for tests, on a file system with free syncs: they kill processes, not the machine, so
data in the kernel's cache survive there as well."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from loopline.bench.proofs.faults.driver import Attack, AttackSettings, Driver
from loopline.bench.proofs.faults.settings import FAST, Times

_MEMORY = Path("/dev/shm")


def attack(
    *,
    runs: int,
    seed: int,
    rate: float,
    weights: Mapping[str, int] | None = None,
    times: Times = FAST,
) -> Attack:
    """One attack on six workers."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="faults-", dir=where) as folder:
        settings = AttackSettings(runs=runs, seed=seed, rate=rate, weights=weights, times=times)
        return asyncio.run(Driver(Path(folder), settings, print).run())

"""Attacks for tests, on a file system whose syncs cost nothing: the processes are killed, not the
machine, so what the kernel has is kept there as well."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bench.faults.driver import Attack, Driver

_MEMORY = Path("/dev/shm")


def attack(*, runs: int, seed: int, rate: float, strike: bool = True) -> Attack:
    """One attack on six workers."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="faults-", dir=where) as folder:
        driver = Driver(
            Path(folder),
            runs=runs,
            seed=seed,
            workers=6,
            rate=rate,
            persistence="always",
            progress=print,
            strike=strike,
        )
        return asyncio.run(driver.run())

"""Limits that a child process of ours sets itself before it reads a stranger's input."""

from __future__ import annotations

import math
import resource


def limit_self(*, memory_bytes: int, cpu_seconds: float) -> None:
    """For the child, before it reads anything: at most so much memory and time of a CPU, no files
    written and no core dumped. Where a limit of the system's is lower, that holds."""
    for kind, wanted in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, math.ceil(cpu_seconds)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (allowed, allowed))

"""The memory of a training: what it has held at most, and how what is freed is kept.

`keep_freed_memory` keeps it in the process instead of giving it back to the kernel at every step.

A training step frees and allocates the same few hundred megabytes again. With glibc's defaults
each large block is mapped and unmapped again and every page is faulted in again: measured on the
micro-LLM's step, that cost 45 % of the time.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Parameters of mallopt(3) in glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
"""glibc refuses more."""


def keep_freed_memory() -> bool:
    """Whether the allocator understood; on another C library nothing is changed."""
    name = ctypes.util.find_library("c")
    mallopt = getattr(ctypes.CDLL(name), "mallopt", None) if name else None
    if mallopt is None:
        return False
    settings = (
        (_ARENA_MAX, 1),
        (_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD),
        (_TRIM_THRESHOLD, 2**31 - 1),
        (_TOP_PAD, 256 * 1024 * 1024),
    )
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)


def peak_memory_mb(device: torch.device) -> float:
    """Most memory that this process has held: of the GPU, or else resident."""
    import torch

    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    # Kilobytes on Linux.
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1)

"""The memory of a training: its peak, and how freed memory is kept.

`keep_freed_memory` keeps freed memory in the process instead of returning it to the kernel at every
step.

Every training step frees and allocates the same few hundred megabytes. With glibc's defaults, each
large block is mapped and unmapped each time, and every page is faulted in again: measured on the
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
"""glibc's upper limit."""


def keep_freed_memory() -> bool:
    """Returns whether the allocator accepted the settings; another C library is left unchanged."""
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
    """Peak memory of this process: on the GPU, or otherwise resident."""
    import torch

    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    # Kilobytes on Linux.
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1)


def peak_reserved_mb(device: torch.device) -> float | None:
    """Peak of the GPU memory that PyTorch has reserved for this process, unused pieces included: it
    must fit into the card. None on a CPU."""
    import torch

    if device.type != "cuda":
        return None
    return round(torch.cuda.max_memory_reserved(device) / 1e6, 1)

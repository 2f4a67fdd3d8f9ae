"""Resident memory over the course of a soak."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

import psutil

SAMPLES = 400
"""Samples over the whole run; the first half is ignored, since caches fill and allocators
settle."""

FEWEST_REQUESTS = 2000
"""Fewest requests for a verdict: in a shorter run, one-time allocations outweigh any growth."""

GROWTH = 0.05
"""Most growth of the memory from the third quarter of the samples to the last, as a share."""


def resident_bytes() -> int:
    """Return the bytes of this process in memory."""
    return int(psutil.Process(os.getpid()).memory_info().rss)


def quarters(samples: Sequence[int]) -> tuple[float, float]:
    """Return the medians of the third and of the last quarter of the samples; at least four
    samples."""
    half, rest = len(samples) // 2, 3 * len(samples) // 4
    return statistics.median(samples[half:rest]), statistics.median(samples[rest:])


def growth(samples: Sequence[int]) -> float | None:
    """Growth from the third quarter to the last, as a share; None for fewer than four samples."""
    if len(samples) < 4:
        return None
    third, last = quarters(samples)
    return last / third - 1

"""The number of generated instances of each kind that a second solver verifies:
PUZZLE_INSTANCES=10000 for the number that the project promises."""

from __future__ import annotations

import os

from loopline.agents.environments.puzzle_splits import Split

INSTANCES = int(os.environ.get("PUZZLE_INSTANCES", "200"))
FEWER = int(os.environ.get("PUZZLE_INSTANCES", "60"))
"""The number for kinds that take long to solve."""
FEWEST = int(os.environ.get("PUZZLE_INSTANCES", "4"))
"""The number for kinds that take a second solver a second each."""

TIMEOUT = 120 + INSTANCES // 2
"""Seconds for a test that checks this number."""


def by_split(count: int) -> dict[Split, int]:
    """Return this many instances of all splits together: half of them from training."""
    elsewhere = count // 4
    return {
        Split.TRAIN: count - 2 * elsewhere,
        Split.VALIDATION: elsewhere,
        Split.TEST: elsewhere,
    }

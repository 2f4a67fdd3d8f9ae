"""`python -m loopline.trainers.grpo.arms.worker OUTPUT TRACKER,…`: a process that runs one arm, on
one core.

See `loopline.trainers.core.job_processes`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from loopline.trainers.core.job_processes import JobLine, serve_jobs
from loopline.trainers.grpo.arms.settings import SETTINGS, ArmSettings

_SECONDS = 0.5
"""Minimum seconds between two lines about an arm in training."""


def _work(output: Path, job: str, tell: Callable[[JobLine], None]) -> str:
    from loopline.trainers.grpo.arms.arm import train_arm
    from loopline.trainers.grpo.arms.results import Arm

    last = 0.0

    def at(update: JobLine) -> None:
        nonlocal last
        if update.event != "training" or time.monotonic() - last >= _SECONDS:
            last = time.monotonic()
            tell(update)

    settings = ArmSettings.model_validate_json((output / SETTINGS).read_bytes())
    trackers = tuple(filter(None, sys.argv[2].split(",")))
    result = train_arm(Arm.model_validate_json(job), output, settings, at, trackers)
    return f"{result.solved:,} of {len(result.outcomes):,} held-out puzzles solved"


if __name__ == "__main__":
    serve_jobs(_work)

"""`python -m loopline.trainers.grpo.arms.worker OUTPUT`: a process that does one arm, on one core.

See `loopline.trainers.core.job_processes`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from loopline.trainers.core.job_processes import Told, serve_jobs
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.settings import SETTINGS, ArmSettings

_SECONDS = 0.5
"""Between two lines about an arm in training, at least."""


def _work(output: Path, job: str, tell: Callable[[Told], None]) -> None:
    import torch

    from loopline.agents.errors import AgentError
    from loopline.trainers.core.memory import keep_freed_memory
    from loopline.trainers.grpo.arms.arm import work
    from loopline.trainers.grpo.arms.results import Arm
    from loopline.workers.engines.protocol import EngineError

    keep_freed_memory()
    torch.set_num_threads(1)
    last = 0.0

    def at(told: Told) -> None:
        nonlocal last
        if told.event != "training" or time.monotonic() - last >= _SECONDS:
            last = time.monotonic()
            tell(told)

    try:
        settings = ArmSettings.model_validate_json((output / SETTINGS).read_bytes())
        result = work(Arm.model_validate_json(job), output, settings, at)
        said = f"{result.solved:,} of {len(result.outcomes):,} held-out puzzles solved"
        tell(Told(event="finished", said=said))
    except (TrainingError, EngineError, AgentError) as error:
        tell(Told(event="failed", said=str(error)))
        raise SystemExit(1) from None


if __name__ == "__main__":
    serve_jobs(_work)

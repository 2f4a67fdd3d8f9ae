"""`python -m trainers.grpo.demo.worker OUTPUT`: a process that does one arm after the other, on one
core.

It reads arms from stdin, a line of JSON each, and writes what becomes of them to stdout, a line of
JSON each; it ends with its stdin. SIGINT lets it stop where it can be gone on from.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from trainers.errors import TrainingError
from trainers.grpo.demo.settings import SETTINGS, DemoSettings

EXIT_INTERRUPTED = 130
_SECONDS = 0.5
"""Between two lines about an arm, at least."""


class Told(BaseModel):
    """One line of stdout, about the arm in work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: Literal["training", "finished", "failed"]
    share: float = 0.0
    """Of the arm that is done."""
    said: str = ""


def main() -> None:
    """See the module."""
    # What libraries print must not stand among the lines that are read.
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(told: Told) -> None:
        lines.write(told.model_dump_json() + "\n")

    try:
        _work(Path(sys.argv[1]), tell)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def _work(output: Path, tell: Callable[[Told], None]) -> None:
    import torch

    from agents.errors import AgentError
    from trainers.grpo.demo.arm import work
    from trainers.grpo.demo.results import Arm
    from trainers.memory import keep_freed_memory
    from workers.engines.protocol import EngineError

    keep_freed_memory()
    torch.set_num_threads(1)
    last = 0.0

    def at(share: float, said: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _SECONDS:
            last = now
            tell(Told(event="training", share=share, said=said))

    try:
        settings = DemoSettings.model_validate_json((output / SETTINGS).read_bytes())
        for line in sys.stdin:
            arm = Arm.model_validate_json(line)
            result = work(arm, output, settings, at)
            said = f"{result.solved:,} of {len(result.outcomes):,} held-out puzzles solved"
            tell(Told(event="finished", share=1.0, said=said))
    except (TrainingError, EngineError, AgentError) as error:
        tell(Told(event="failed", said=str(error)))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

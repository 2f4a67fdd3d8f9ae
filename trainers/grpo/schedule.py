"""The learning rate over a training, as a factor of the requested one: a pure function of the step,
so that a resumed training continues with the same rates."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from loopline.runtime.config.options import Option, Options

Shape = Literal["constant", "linear", "cosine"]


class Schedule(Options):
    """How the learning rate changes."""

    panel: ClassVar[str] = "Optimisation"

    shape: Annotated[Shape, Option("schedule")] = "constant"
    """Learning rate after the warm-up: constant, or falling to 0 after the last step by a straight
    line (linear) or half a cosine (cosine)."""
    warmup: Annotated[int, Option(metavar="<steps>")] = Field(default=0, ge=0)
    """Steps in which the learning rate rises to the one that is asked for."""

    def factor(self, step: int, steps: int) -> float:
        """Factor of the learning rate in step 1 to `steps`; above 0 and at most 1."""
        if step <= self.warmup:
            return step / (self.warmup + 1)
        if self.shape == "constant":
            return 1.0
        progress = (step - self.warmup - 1) / max(steps - self.warmup, 1)
        if self.shape == "linear":
            return 1.0 - progress
        return 0.5 * (1.0 + math.cos(math.pi * progress))

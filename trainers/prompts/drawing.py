"""Curves of a search: the share that its candidates solve, over the runs that it has played.

    OUTPUT/curves/<prompt>/

A resumed search takes its earlier rounds from the log of its runs, and draws them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from loopline.trainers.core.curves import FOLDER, Curves
from loopline.trainers.prompts.candidates import CURRENT
from loopline.trainers.prompts.search import Arm


class DrawnSearch:
    """Context manager that draws for these trackers; without trackers it draws nothing."""

    def __init__(self, output: Path, trackers: tuple[str, ...]) -> None:
        self._folder = output / FOLDER if trackers else None
        self._trackers = trackers
        self._open = ExitStack()
        self._curves: dict[str, Curves] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def round(self, prompt: str, runs: int, arms: Sequence[Arm]) -> None:
        """Draw the candidates of a round, at the number of runs in the prompt's search."""
        if self._folder is None:
            return
        if prompt not in self._curves:
            curves = Curves(self._folder / prompt, 0, self._trackers)
            self._curves[prompt] = self._open.enter_context(curves)
        shares = [arm.solved / len(arm.played) for arm in arms if arm.played]
        values = {
            "solved by the best candidate": max(shares),
            "solved by the mean candidate": sum(shares) / len(shares),
            "candidates": float(len(arms)),
            "tokens per run": sum(arm.tokens_per_run for arm in arms) / len(arms),
        }
        for arm in arms:
            if arm.candidate.label == CURRENT:
                values["solved by the prompt in force"] = arm.solved / len(arm.played)
        self._curves[prompt].add(runs, values)

"""Evaluations on held-out tasks during a loop (looks): they find the best version, and show when
another round is not worth it. The results of a look are on disk, and are not played again."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.records import Outcome
from loopline.runtime.client.run_ids import new_run_id
from loopline.trainers.data.questions import Question
from loopline.trainers.grpo.loop.asked import judged
from loopline.trainers.grpo.loop.rollouts import Rollouts
from loopline.trainers.grpo.loop.run_directory import PlannedRun, RolloutBatch, RunDirectory
from loopline.trainers.grpo.loop.settings import Look, LoopSettings

LOOK_NUMBER = 0
"""Number of a look, in place of a wave's."""


class Looks:
    """Looks of one loop."""

    def __init__(
        self, settings: LoopSettings, directory: RunDirectory, questions: Sequence[Question]
    ) -> None:
        self.settings, self.directory, self.questions = settings, directory, questions

    def is_due(self, number: int, *, last: bool) -> bool:
        """Whether the version that a round made is due for evaluation."""
        every = self.settings.look_every
        if not every or any(look.round == number for look in self.directory.looks()):
            return False
        return last or number % every == 0

    async def look(self, rollouts: Rollouts, number: int) -> Look:
        """Play the held-out tasks greedily with the version of a round, which the deployment
        serves."""
        batch = self.directory.look_plan(number)
        if batch is None:
            runs = tuple(
                PlannedRun(id=new_run_id(), seed=at, task=question.task, gold=question.gold)
                for at, question in enumerate(self.questions)
            )
            batch = RolloutBatch(round=number, number=LOOK_NUMBER, puzzles=len(runs), runs=runs)
            self.directory.plan_look(batch)
        await rollouts.begin(batch)
        trajectories = judged(batch.runs, await rollouts.collect(batch))
        solved = (trajectory.outcome is Outcome.SOLVED for trajectory in trajectories)
        look = Look(round=number, outcomes="".join("1" if ok else "0" for ok in solved))
        self.directory.note_look(look)
        return look

    @property
    def best(self) -> Look | None:
        """The first of the looks that solve the most; None before the first look."""
        return max(
            self.directory.looks(), key=lambda look: (look.success, -look.round), default=None
        )

    @property
    def has_stalled(self) -> bool:
        """Whether the last looks, as many as the patience allows, found nothing better."""
        patience, best = self.settings.patience, self.best
        if patience is None or best is None:
            return False
        return sum(look.round > best.round for look in self.directory.looks()) >= patience

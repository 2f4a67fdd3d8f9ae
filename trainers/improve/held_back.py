"""Questions that are held back from training, with the verdicts on their answers: the audited runs
of the cascade, a random sample of its traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import Call, Outcome, Run, Step, Trajectory
from loopline.agents.router.features import AnswerEvidence, comparable_answer
from loopline.agents.workflows.cascade import is_audited
from loopline.trainers.data.store import iterate_trajectories
from loopline.trainers.distill.escalations import question_key
from loopline.trainers.improve.asking import SmallAnswer
from loopline.trainers.router.labelled import Labelled
from loopline.trainers.router.prices import BIG_PRICES
from loopline.trainers.router.recorded import Answered
from loopline.workers.router_watch import verdict_of
from loopline.workers.store.rewards import read_rewards

Judge = Callable[[str, str], bool | None]
"""Whether an answer to a question is right; None if the judge does not know the question."""


@dataclass(frozen=True)
class HeldBack:
    """One question."""

    run: Run
    small: Step
    big: Step
    right: bool | None
    """Whether the big model's answer is right; None if unknown."""

    @property
    def question(self) -> str:
        return self.run.task.prompt

    @property
    def first_call(self) -> Call | None:
        """Call with the small model's answer."""
        return Answered(self.small, None).last if self.small.calls else None

    def is_right(self, answer: str, judge: Judge | None) -> bool | None:
        """Whether an answer is right, according to the judge. Without a judge it is right if it
        equals the big model's answer; if that is wrong, another answer is undecided (None)."""
        if judge is not None and (judged := judge(self.question, answer)) is not None:
            return judged
        same = comparable_answer(answer) == comparable_answer(self.big.calls[-1].said)
        if self.right is False:
            return False if same else None
        return same


def read_held_back(store: Path, most: int) -> list[HeldBack]:
    """The latest audited runs, one for each question, in the order in which they were admitted.
    Raises `UnreadableData` if there is no store."""
    rewards = read_rewards(store).of_target()
    by_question: dict[str, HeldBack] = {}
    for trajectory in _audited(iterate_trajectories(store, "cascade", [])):
        steps = {step.agent: step for step in trajectory.steps}
        small, big = steps.get("first"), steps.get("solo")
        if small is None or big is None or not big.calls or big.decision.kind != "answer":
            continue
        key = question_key(trajectory.run.task.prompt)
        by_question.pop(key, None)
        by_question[key] = HeldBack(trajectory.run, small, big, verdict_of(trajectory, rewards))
    return [*by_question.values()][-most:]


def labelled(
    questions: Iterable[HeldBack], answers: dict[str, SmallAnswer], judge: Judge | None
) -> list[Labelled]:
    """Rows that calibrate a router: a version's answers, by run, with the big model's. Answers of
    unknown correctness are left out."""
    rows: list[Labelled] = []
    for entry in questions:
        answer = answers[entry.run.id]
        small_right = entry.is_right(answer.text, judge)
        big_right = entry.is_right(entry.big.calls[-1].said, judge)
        if small_right is None or big_right is None:
            continue
        rows.append(
            Labelled(
                id=entry.run.id,
                evidence=AnswerEvidence(entry.question, answer.text, answer.logprobs),
                small_right=small_right,
                big_right=big_right,
                small_cost=answer.micro_dollars / 1e6,
                big_cost=Answered(entry.big, None).dollars(BIG_PRICES),
                has_feedback=entry.right is not None,
            )
        )
    return rows


def _audited(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    ended = (Outcome.ANSWERED, Outcome.SOLVED, Outcome.FAILED)
    fitting = [
        trajectory
        for trajectory in trajectories
        if trajectory.outcome in ended and is_audited(trajectory.run)
    ]
    return sorted(fitting, key=lambda trajectory: trajectory.run.id)

"""Escalations of a store: questions whose small answer the ladder refused, with the answer that
replaced it.

Questions for learning and for measurement are kept apart. An *audited* run belongs to a random
sample that calibrates routers and compares versions, so it is not an example. Neither is a run of a
task that is held out from training, nor any other run with the same question as one of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from loopline.agents.records import Run, Step, Trajectory
from loopline.agents.workflows.cascade import is_audited
from loopline.trainers.data.data_files import ROWS, read_records
from loopline.trainers.data.held_out import HELD_OUT, require_training
from loopline.trainers.data.json_files import Reading, Skipped, Unreadable
from loopline.trainers.data.store import iterate_trajectories, require_usable
from loopline.trainers.distill.escalation import UNANSWERED, Escalation, question_key
from loopline.trainers.distill.steps import has_replaced_steps, replaced_steps
from loopline.trainers.errors import UnreadableData
from loopline.workers.router_watch import verdict_of
from loopline.workers.store.rewards import read_rewards

WORKFLOWS = ("cascade", "delegate")
"""Workflows whose ladder escalates a question or a sub-task to a big model. Agents of other
workflows may escalate single steps."""
SMALL_AGENTS = ("first", "slm")
KIND_TAG = "kind"
"""Tag of a run with the kind of its question."""

ACCEPTED = "run whose small answer the ladder accepted"
AUDITED = "audited run: it measures"
HELD_OUT_KIND = "question of a kind that is held out"
HELD_OUT_QUESTION = "question that is held out"
UNCONFIRMED = "escalation without feedback"
WRONG = "escalation whose answer feedback calls wrong"
ASKED_AGAIN = "question that was asked again later"


@dataclass(frozen=True)
class HeldOut:
    """Questions that are held out from training."""

    kinds: frozenset[str] = frozenset()
    """Values of the tag `kind`."""
    questions: frozenset[str] = frozenset()
    """Questions, by their `question_key`."""

    @classmethod
    def of(cls, kinds: Collection[str], questions: Collection[str]) -> HeldOut:
        return cls(frozenset(kinds), frozenset(map(question_key, questions)))

    def require_free(self, run: Run, question: str) -> None:
        """Raise `Unreadable` if the question, or that of its run, is held out."""
        kind = run.tags.get(KIND_TAG)
        if kind in self.kinds:
            raise Unreadable(HELD_OUT_KIND, str(kind))
        if self.questions & {question_key(run.task.prompt), question_key(question)}:
            raise Unreadable(HELD_OUT_QUESTION)


NOTHING = HeldOut()


def read_escalations(
    store: Path, held_out: HeldOut = NOTHING, *, confirmed: bool = False
) -> Reading[Escalation]:
    """One escalation of each question, the latest one, in the order in which the runs were
    admitted. Answers that feedback marks as wrong are left out; with `confirmed`, all that it does
    not mark as right. Raises `UnreadableData` if there is no store."""
    posted = read_rewards(store)
    rewards = posted.of_target()
    skipped = list(posted.skipped)
    measured: set[str] = set()
    candidates: list[Escalation] = []
    for trajectory in iterate_trajectories(store, None, skipped):
        if _measures(trajectory.run):
            measured.add(question_key(trajectory.run.task.prompt))
        if trajectory.run.workflow not in WORKFLOWS and not has_replaced_steps(trajectory):
            continue
        try:
            escalations = escalations_of(trajectory)
            right = verdict_of(trajectory, rewards)
            if right is False:
                raise Unreadable(WRONG)
            if right is None and confirmed:
                raise Unreadable(UNCONFIRMED)
        except Unreadable as error:
            skipped.append(error.at(trajectory.run.id))
        else:
            candidates += escalations
    held_out = HeldOut(held_out.kinds, held_out.questions | measured)
    by_question: dict[str, Escalation] = {}
    for escalation in sorted(candidates, key=lambda escalation: escalation.run.id):
        key = escalation.key
        try:
            held_out.require_free(escalation.run, escalation.question)
        except Unreadable as error:
            skipped.append(error.at(escalation.run.id))
            continue
        if (earlier := by_question.pop(key, None)) is not None:
            skipped.append(Skipped(earlier.run.id, ASKED_AGAIN))
        by_question[key] = escalation
    return Reading(tuple(by_question.values()), tuple(skipped))


def escalations_of(trajectory: Trajectory) -> list[Escalation]:
    """The escalations of a run. Raises `Unreadable` for a run that has none to learn from."""
    require_usable(trajectory, whole=True)
    if trajectory.run.workflow == "cascade" and is_audited(trajectory.run):
        raise Unreadable(AUDITED)
    refused = [step for step in trajectory.steps if step.decision.kind == "escalate"]
    escalations = [
        Escalation(trajectory.run, step, big)
        for step in refused
        for big in _replies(trajectory, step)
        if big.decision.kind == "answer" and big.calls
    ]
    escalations += replaced_steps(trajectory)
    if not escalations:
        small = any(step.agent in SMALL_AGENTS for step in trajectory.steps)
        raise Unreadable(ACCEPTED if small and not refused else UNANSWERED)
    return escalations


def _replies(trajectory: Trajectory, refused: Step) -> Iterator[Step]:
    """Steps of the big model that follow a refused one."""
    for step in trajectory.steps:
        if (step.turn, step.branch) == (refused.turn + 1, refused.branch):
            yield step


def _measures(run: Run) -> bool:
    if run.workflow == "cascade" and is_audited(run):
        return True
    try:
        require_training(run)
    except Unreadable as error:
        return error.reason == HELD_OUT
    return False


ENDINGS = (".txt", *ROWS)


def read_questions(path: Path) -> list[str]:
    """The field `question` of rows, or the lines of any other file. Raises `UnreadableData`: a
    question that can't be read here would be learned from."""
    if not path.name.endswith(ROWS):
        try:
            return [line for line in path.read_text().splitlines() if line]
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableData(
                f"--hold-out {path} cannot be read: {error}; give a UTF-8 text file with one "
                "question on each line, or rows with `question` (.jsonl, .parquet)"
            ) from error
    reading = read_records(path, _question)
    if reading.skipped:
        first = reading.skipped[0]
        detail = f" ({first.detail})" if first.detail else ""
        raise UnreadableData(
            f"--hold-out: {path.parent / first.where}: {first.reason}{detail}: fix or remove it; "
            "otherwise the training would learn from its question"
        )
    return list(reading.records)


def _question(number: int, value: Any) -> str:
    question = cast(dict[str, Any], value).get("question") if isinstance(value, dict) else None
    if not isinstance(question, str) or not question.strip():
        raise Unreadable("expected an object with `question`, a text")
    return question

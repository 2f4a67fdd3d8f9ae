"""Escalations of a store: questions whose small answer the ladder refused, with the answer that
stands in its place.

What is learned from and what is measured with are kept apart. An *audited* run belongs to a random
sample that calibrates routers and compares versions, so it is not an example. Neither is a run of a
task that is held out from training, nor any other run that asks the same question as one of these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import Call, Message, Run, Step, Trajectory
from loopline.agents.roles.conversation import assistant_message, turn_messages
from loopline.agents.router.features import comparable_answer
from loopline.agents.workflows.cascade import is_audited
from loopline.trainers.data.held_out import HELD_OUT, require_training
from loopline.trainers.data.json_files import Reading, Skipped, Unreadable
from loopline.trainers.data.store import iterate_trajectories
from loopline.trainers.data.usable_runs import require_usable
from loopline.trainers.router.recorded import Answered
from loopline.workers.router_watch import verdict_of
from loopline.workers.store.rewards import read_rewards

KIND_TAG = "kind"
"""Tag of a run that says which kind of question it asks."""

ACCEPTED = "run whose small answer the ladder accepted"
AUDITED = "audited run: it measures"
HELD_OUT_KIND = "question of a kind that is held out"
HELD_OUT_QUESTION = "question that is held out"
UNANSWERED = "escalation without an answer"
UNCONFIRMED = "escalation without feedback"
WRONG = "escalation whose answer feedback calls wrong"
ASKED_AGAIN = "question that was asked again later"


@dataclass(frozen=True)
class Escalation:
    """A question that the small model could not answer well enough."""

    run: Run
    small: Step
    big: Step

    @property
    def refused(self) -> Call | None:
        """The small model's completion that held the answer; None where it gave none."""
        return Answered(self.small, None).last if self.small.calls else None

    @property
    def accepted(self) -> Call:
        """The big model's."""
        return self.big.calls[-1]

    @property
    def differs(self) -> bool:
        """Whether there are two answers, so that one is to be preferred."""
        refused = self.refused
        return refused is not None and (
            comparable_answer(refused.said) != comparable_answer(self.accepted.said)
        )


@dataclass(frozen=True)
class HeldOut:
    """What is kept away from training."""

    kinds: frozenset[str] = frozenset()
    """Values of the tag `kind`."""
    questions: frozenset[str] = frozenset()
    """As `question_key` has them."""

    @classmethod
    def of(cls, kinds: Collection[str], questions: Collection[str]) -> HeldOut:
        return cls(frozenset(kinds), frozenset(map(question_key, questions)))

    def require_free(self, run: Run) -> None:
        """Raises `Unreadable` for a run of one of these."""
        kind = run.tags.get(KIND_TAG)
        if kind in self.kinds:
            raise Unreadable(HELD_OUT_KIND, str(kind))
        if question_key(run.task.prompt) in self.questions:
            raise Unreadable(HELD_OUT_QUESTION)


NOTHING = HeldOut()


def question_key(question: str) -> str:
    """The same for questions that differ in nothing but spaces and capitals."""
    return " ".join(question.casefold().split())


def read_escalations(
    store: Path, held_out: HeldOut = NOTHING, *, confirmed: bool = False
) -> Reading[Escalation]:
    """One of each question, the last one asked, in the order in which they were admitted. What
    feedback calls wrong is left out; with `confirmed` all that it does not call right. Raises
    `UnreadableData` if there is no store."""
    posted = read_rewards(store)
    rewards = posted.of_target()
    skipped = list(posted.skipped)
    measured: set[str] = set()
    candidates: list[Escalation] = []
    for trajectory in iterate_trajectories(store, None, skipped):
        if _is_held_out(trajectory.run):
            measured.add(question_key(trajectory.run.task.prompt))
        if trajectory.run.workflow != "cascade":
            continue
        try:
            escalation = escalation_of(trajectory)
            right = verdict_of(trajectory, rewards)
            if right is False:
                raise Unreadable(WRONG)
            if right is None and confirmed:
                raise Unreadable(UNCONFIRMED)
        except Unreadable as error:
            skipped.append(error.at(trajectory.run.id))
        else:
            candidates.append(escalation)
    held_out = HeldOut(held_out.kinds, held_out.questions | measured)
    by_question: dict[str, Escalation] = {}
    for escalation in sorted(candidates, key=lambda escalation: escalation.run.id):
        key = question_key(escalation.run.task.prompt)
        try:
            held_out.require_free(escalation.run)
        except Unreadable as error:
            skipped.append(error.at(escalation.run.id))
            continue
        if (earlier := by_question.pop(key, None)) is not None:
            skipped.append(Skipped(earlier.run.id, ASKED_AGAIN))
        by_question[key] = escalation
    return Reading(tuple(by_question.values()), tuple(skipped))


def escalation_of(trajectory: Trajectory) -> Escalation:
    """Raises `Unreadable` for a run that is none to learn from."""
    require_usable(trajectory, whole=True)
    if is_audited(trajectory.run):
        raise Unreadable(AUDITED)
    steps = {step.agent: step for step in trajectory.steps}
    small, big = steps.get("first"), steps.get("solo")
    if small is not None and small.decision.kind == "answer":
        raise Unreadable(ACCEPTED)
    if small is None or big is None or big.decision.kind != "answer" or not big.calls:
        raise Unreadable(UNANSWERED)
    return Escalation(trajectory.run, small, big)


def conversation_after(step: Step, calls: Sequence[Call]) -> list[Message]:
    """What was said after the question: these completions of the step, its first ones, each as a
    turn that any chat template can write, and between them the answers of tools. Raises
    `Unreadable` where one of these is missing."""
    turns = step.observation.get("turns")
    entries = turns if isinstance(turns, list) else []
    messages: list[Message] = []
    try:
        for call, answers in zip(calls[:-1], entries, strict=False):
            messages += turn_messages(call, answers if isinstance(answers, list) else (), _missing)
    except ValueError as error:
        raise Unreadable(UNANSWERED, str(error)) from error
    messages.append(assistant_message(calls[-1]))
    # In the markup of the model that learns: another model's is not its own.
    return [message.model_copy(update={"raw_text": None}) for message in messages]


def _is_held_out(run: Run) -> bool:
    try:
        require_training(run)
    except Unreadable as error:
        return error.reason == HELD_OUT
    return False


def _missing(position: int) -> str:
    raise ValueError(f"tool call {position} was handed over, and its answer is elsewhere")

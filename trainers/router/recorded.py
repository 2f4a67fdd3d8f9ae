"""Labelled answers from a deployment's own traffic.

Two kinds of recorded runs contain both models' answers to one question: *audited* runs of the
workflow `cascade`, which are a random sample of all of its runs (escalated runs are not, and a
bound calibrated on them would promise too much), and runs of `solo` that give the same question to
the small model and to the big one.

Feedback decides whether an answer is right: a reward posted for its run (right from 0.5 on), or the
outcome `solved` or `failed`. Without feedback, the big model's answer is assumed to be right, and
the small one's is right if it is the same: a router then learns when the small model agrees with
the big one, and the summary states this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from loopline.agents.records import Call, Step, Trajectory
from loopline.agents.router.features import AnswerEvidence, comparable_answer
from loopline.agents.router.rungs import logprobs_of
from loopline.agents.router.watching import Watched
from loopline.agents.workflows.cascade import is_audited
from loopline.bus import pool_of
from loopline.bus.canaries import is_shadow
from loopline.trainers.core.json_records import damage_error
from loopline.trainers.core.output_folder import guard_disk_writes
from loopline.trainers.data.json_files import Skipped, summarize_skipped
from loopline.trainers.data.store import iterate_trajectories
from loopline.trainers.errors import UnreadableData
from loopline.trainers.router.labelled import BadLabels, Labelled
from loopline.trainers.router.prices import BIG_PRICES, SMALL_PRICES, Prices
from loopline.workers.router_watch import audited_runs, tighten, verdict_of
from loopline.workers.store.records import NoRecords
from loopline.workers.store.rewards import read_rewards

WORKFLOWS = ("cascade", "solo")
SMALL_POOL, BIG_POOL = "slm", "llm"


@dataclass(frozen=True)
class Answered:
    """One model's answer to one question."""

    step: Step
    right: bool | None
    """Whether the answer is right; None: unknown."""

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.step.calls

    @property
    def last(self) -> Call:
        """The call that contains the answer: samples follow it."""
        return self.calls[len(self.calls) - len(self.samples) - 1]

    @property
    def samples(self) -> tuple[Call, ...]:
        """Further answers that a cascade drew."""
        count = self.step.decision.data.get("samples", 0)
        return self.calls[len(self.calls) - count :] if isinstance(count, int) else ()

    def dollars(self, prices: Prices) -> float:
        """US dollars paid; computed from `prices` if the pool had none."""
        return _dollars(self.calls, prices)

    def samples_dollars(self, prices: Prices) -> float:
        """US dollars paid for the samples, included in `dollars`."""
        return _dollars(self.samples, prices)


@dataclass(frozen=True)
class Recorded:
    """Labelled answers of a store."""

    rows: list[Labelled]
    runs: int
    skipped: tuple[Skipped, ...]

    @property
    def summary(self) -> str:
        """A summary as text."""
        text = f"{self.runs:,} runs, {len(self.rows):,} questions that both models answered"
        by_big_model = sum(not row.has_feedback for row in self.rows)
        if by_big_model:
            text += (
                f", {by_big_model:,} of them without feedback: there the big model's answer "
                "is taken as right"
            )
        return text + (f"; not read: {summarize_skipped(self.skipped)}" if self.skipped else "")


def read_recorded(
    store: Path, small_prices: Prices = SMALL_PRICES, big_prices: Prices = BIG_PRICES
) -> Recorded:
    """Read a store. If a question was answered several times, the latest answers count. The prices
    apply to calls whose pool had none. Raises `UnreadableData` if there is no store."""
    skipped: list[Skipped] = []
    posted = read_rewards(store)
    rewards = posted.of_target()
    small: dict[str, Answered] = {}
    big: dict[str, Answered] = {}
    runs = 0
    for workflow in WORKFLOWS:
        for trajectory in iterate_trajectories(store, workflow, skipped):
            if is_shadow(trajectory.run.id):
                continue
            runs += 1
            if workflow == "cascade":
                _add_audited(trajectory, verdict_of(trajectory, rewards), small, big)
            else:
                _add_solo(trajectory, verdict_of(trajectory, rewards), small, big)
    rows = _labelled(small, big, small_prices, big_prices)
    return Recorded(rows, runs, (*skipped, *posted.skipped))


def _add_audited(
    trajectory: Trajectory,
    right: bool | None,
    small: dict[str, Answered],
    big: dict[str, Answered],
) -> None:
    steps = {step.agent: step for step in trajectory.steps if step.calls}
    if "first" not in steps or "solo" not in steps or not is_audited(trajectory.run):
        return
    question = trajectory.run.task.prompt
    big[question] = Answered(steps["solo"], right)
    # Feedback on the run is feedback on the big model's answer: it applies to the small one's only
    # if both are the same.
    small[question] = Answered(steps["first"], None)


def _add_solo(
    trajectory: Trajectory,
    right: bool | None,
    small: dict[str, Answered],
    big: dict[str, Answered],
) -> None:
    if len(trajectory.steps) != 1 or not trajectory.steps[0].calls:
        return
    pool = pool_of(trajectory.run.policies.get("solo", ""))
    side = {SMALL_POOL: small, BIG_POOL: big}.get(pool)
    if side is not None:
        side[trajectory.run.task.prompt] = Answered(trajectory.steps[0], right)


def _labelled(
    small: Mapping[str, Answered],
    big: Mapping[str, Answered],
    small_prices: Prices,
    big_prices: Prices,
) -> list[Labelled]:
    rows: list[Labelled] = []
    for question in sorted(small.keys() & big.keys()):
        first, second = small[question], big[question]
        same = comparable_answer(first.last.said) == comparable_answer(second.last.said)
        big_right, small_right = second.right, first.right
        if big_right is None and same:
            big_right = small_right
        if small_right is None and same:
            small_right = big_right
        if small_right is None and big_right is False:
            # An answer that differs from a wrong one may be right: unknown.
            continue
        big_right = True if big_right is None else big_right
        small_right = same if small_right is None else small_right
        rows.append(
            Labelled(
                id=first.step.run_id,
                evidence=AnswerEvidence(
                    question,
                    first.last.said,
                    logprobs_of((first.last,)),
                    tuple(call.said for call in first.samples),
                ),
                small_right=small_right,
                big_right=big_right,
                small_cost=first.dollars(small_prices) - first.samples_dollars(small_prices),
                big_cost=second.dollars(big_prices),
                samples_cost=first.samples_dollars(small_prices),
                has_feedback=first.right is not None or second.right is not None,
            )
        )
    return rows


def _dollars(calls: Sequence[Call], prices: Prices) -> float:
    paid = sum(call.cost_micro_dollars for call in calls) / 1e6
    return paid or sum(prices.of_tokens(call.usage) for call in calls)


def watch(path: Path, store: Path) -> Watched:
    """Check the store once. Tightens the router file if the alarm is raised. Raises BadLabels for a
    file that is not a router, `UnreadableData` for a folder that is not a store, OSError."""
    try:
        with guard_disk_writes(path):
            return tighten(path, lambda _router: audited_runs(store))
    except ValidationError as error:
        raise damage_error(path, error, "train it again with `train router`", BadLabels) from error
    except NoRecords as error:
        raise UnreadableData(str(error)) from error

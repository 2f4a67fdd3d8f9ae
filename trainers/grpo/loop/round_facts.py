"""Results of a round's rollouts, and facts about the round when it is trained."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from loopline.agents.records import Outcome, Trajectory
from loopline.agents.workflows.pair import agreement_rate
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.data.store import BROKEN_OFF
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.loop.levels import LevelFacts
from loopline.trainers.grpo.loop.report import RoundFacts, Seconds
from loopline.trainers.grpo.loop.round_groups import RoundGroups
from loopline.trainers.grpo.loop.run_directory import RolloutBatch
from loopline.trainers.grpo.loop.settings import LoopSettings
from loopline.trainers.grpo.report import StepFacts


@dataclass
class RoundRollouts:
    """Results of a round's rollouts."""

    harvest: RoundGroups
    trajectories: list[Trajectory]
    waves: list[RolloutBatch]
    served_versions: dict[str, int]


def nothing_to_learn(
    settings: LoopSettings, number: int, played: int, harvest: RoundGroups
) -> TrainingError:
    """The error of a round without a group that has a signal."""
    counts = harvest.counts
    listed = "".join(
        f"; {count:,} × {reason}, such as {example}" for reason, count, example in harvest.reasons
    )
    levels = " (--size, --difficulty)" if settings.tasks is None and not settings.asks else ""
    levels = " (--level)" if settings.level else levels
    cut, longer = "", ""
    frozen = f", {counts['frozen']:,} of policies whose turn it is not" if counts["frozen"] else ""
    if counts["truncated"]:
        cut = f", {counts['truncated']:,} whose completions all ran into their limit"
        longer = "a larger --max-tokens, --truncated keep, "
    return TrainingError(
        f"loop: round {number} has nothing to learn from: of "
        f"{format_count(played, settings.noun)} {format_count(counts['zero_variance'], 'group')} "
        f"with equal rewards, {counts['stale']:,} too old, {counts['foreign']:,} sampled by other "
        f"weights{frozen}{cut}{listed}. Use {longer}easier {settings.noun}s{levels}, a higher "
        "--group-size or --temperature, a larger --most-puzzles, or a base that knows the format "
        "of an answer"
    )


def _level_facts(rolled: RoundRollouts) -> dict[str, LevelFacts]:
    """Facts by level; empty if rounds have no levels."""
    level_of = {run.id: run.level for wave in rolled.waves for run in wave.runs if run.level}
    if not level_of:
        return {}
    puzzles = sum((wave.levels for wave in rolled.waves), Counter[str]())
    runs, solved = Counter(level_of.values()), Counter[str]()
    for trajectory in rolled.trajectories:
        solved[level_of[trajectory.run.id]] += trajectory.outcome is Outcome.SOLVED
    groups, trained = Counter[str](), Counter[str]()
    for _, record in rolled.harvest.groups:
        name = level_of[record.origins[0].partition("/")[0]]
        groups[name] += 1
        trained[name] += record.fate == "trained"
    return {
        name: LevelFacts(
            share=share,
            puzzles=puzzles[name],
            runs=runs[name],
            solved=solved[name],
            groups=groups[name],
            trained=trained[name],
        )
        for name, share in rolled.waves[0].shares.items()
    }


def facts_of_round(
    number: int, rolled: RoundRollouts, step: StepFacts, seconds: Seconds
) -> RoundFacts:
    """Facts about a round that is trained."""
    counts, outcomes = rolled.harvest.counts, Counter(e.outcome for e in rolled.trajectories)
    played = [
        trajectory for trajectory in rolled.trajectories if trajectory.outcome not in BROKEN_OFF
    ]
    return RoundFacts(
        round=number,
        served=rolled.served_versions,
        puzzles=sum(wave.puzzles for wave in rolled.waves),
        waves=len(rolled.waves),
        runs=len(rolled.trajectories),
        solved=outcomes[Outcome.SOLVED],
        broken=len(rolled.trajectories) - len(played),
        groups=len(rolled.harvest.groups),
        trained=counts["trained"],
        zero_variance=counts["zero_variance"],
        stale=counts["stale"],
        truncated=counts["truncated"],
        foreign=counts["foreign"],
        frozen=counts["frozen"],
        levels=_level_facts(rolled),
        left_out={reason: count for reason, count, _ in rolled.harvest.reasons},
        agreement=agreement_rate(*played),
        step=step,
        seconds=seconds,
    )

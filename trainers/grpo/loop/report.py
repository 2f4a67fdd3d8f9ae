"""Facts about a loop: each round, and the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record
from loopline.trainers.grpo.loop.levels import LevelFacts
from loopline.trainers.grpo.loop.settings import Look, LoopSettings
from loopline.trainers.grpo.report import REPORT, StepFacts, summaries


class Seconds(Record):
    """Seconds of the trainer by activity; the parts add up to the wall-clock time. Runs may be
    played during a step: that time counts as `train`. Attempts at a round that a crash cut short
    are not counted."""

    rollout: float = 0.0
    """Seconds of planning runs, starting them and, with nothing else to do, waiting until the last
    of them ended, by the clock of the machine that it ended on."""
    wait: float = 0.0
    """Idle seconds: all runs had ended and the trainer did not know yet, or it was connecting to
    the bus, or the bus was away, or a server on the same GPU was not asleep yet."""
    train: float = 0.0
    """Seconds of the trainer's other work: sealing groups, the step, its adapters, the checkpoint
    of the previous round."""
    publish: float = 0.0
    """Seconds until the workers serve the version that the round starts with."""

    @property
    def total(self) -> float:
        return self.rollout + self.wait + self.train + self.publish


class RoundFacts(Record):
    """Facts about one round."""

    round: int
    served: dict[str, int]
    """Version of each policy of the deployment when the round started."""
    puzzles: int
    """Number of puzzles, or of tasks of a file."""
    waves: int
    runs: int
    solved: int
    """Number of solved runs; the best candidate of each turn was executed."""
    broken: int
    """Runs that broke off, by an error or their deadline: nothing is learned from them, and their
    puzzles count as unsolved."""
    groups: int
    trained: int
    zero_variance: int
    """Groups whose rewards are all equal."""
    stale: int
    truncated: int = 0
    """Groups whose completions all reached their token limit, if these are masked."""
    foreign: int
    """Groups sampled by weights that the loop has not published."""
    frozen: int = 0
    """Groups sampled by a policy that did not learn in the round."""
    levels: dict[str, LevelFacts] = Field(default_factory=dict)
    """Results by level, if rounds play several."""
    left_out: dict[str, int]
    """Number of samples that could not be sealed, by reason, including runs that broke off."""
    agreement: float | None
    """Share of proposals after which the plan agent did exactly what was proposed; a plan agent
    that always agrees adds nothing. None without any."""
    step: StepFacts
    seconds: Seconds

    @property
    def success(self) -> float:
        """Share of solved runs among all. A run that broke off counts as unsolved; otherwise
        answers that exceed their deadline would make a policy look better."""
        return self.solved / max(self.runs, 1)

    @property
    def zero_variance_share(self) -> float:
        return self.zero_variance / max(self.zero_variance + self.trained, 1)

    def curves(self) -> dict[str, float]:
        """Values by the name of their curve."""
        agreed = {} if self.agreement is None else {"agreement": self.agreement}
        by_level: dict[str, float] = {}
        for name, facts in self.levels.items():
            by_level |= {f"solved/{name}": facts.success, f"share/{name}": facts.share}
        return {
            **agreed,
            **by_level,
            "solved": self.success,
            "broken off": self.broken / max(self.runs, 1),
            "puzzles": self.puzzles,
            "groups": self.groups,
            "zero-variance share": self.zero_variance_share,
            "stale": self.stale + self.foreign,
            "seconds/rollout": self.seconds.rollout,
            "seconds/wait": self.seconds.wait,
            "seconds/train": self.seconds.train,
            "seconds/publish": self.seconds.publish,
        }


class LoopReport(Record):
    """A finished loop."""

    settings: LoopSettings
    version: int
    """Version of the policies at the end of the loop, as the trainer counts."""
    served: dict[str, int]
    """The same as the deployment counts, by policy."""
    rounds: tuple[RoundFacts, ...]
    closing: Seconds
    """Seconds after the last round: its checkpoint, and publishing its result."""
    peak_memory_mb: float
    parameters: int
    """Parameters of all bases."""
    trained_parameters: int
    """Trained parameters of each policy; if they have several bases, of the policy with the
    most."""
    looks: tuple[Look, ...] = ()
    """Evaluations on held-out tasks."""
    best: Look | None = None
    """Evaluation of the version that is served; None without evaluations, when the last version is
    served."""

    @property
    def stopped_early(self) -> bool:
        """Whether the loop ended because its patience was exhausted."""
        return len(self.rounds) < self.settings.rounds

    @property
    def steps(self) -> tuple[StepFacts, ...]:
        return tuple(round_facts.step for round_facts in self.rounds)

    @property
    def runs(self) -> int:
        return sum(round_facts.runs for round_facts in self.rounds)

    @property
    def broken(self) -> int:
        return sum(round_facts.broken for round_facts in self.rounds)

    @property
    def left_out(self) -> dict[str, int]:
        """Number of samples that could not be sealed, by reason."""
        return _sum_counts([round_facts.left_out for round_facts in self.rounds])

    @property
    def seconds(self) -> Seconds:
        """Seconds of all rounds, and of the work after them."""
        parts = [*(entry.seconds for entry in self.rounds), self.closing]
        return Seconds(
            rollout=math.fsum(entry.rollout for entry in parts),
            wait=math.fsum(entry.wait for entry in parts),
            train=math.fsum(entry.train for entry in parts),
            publish=math.fsum(entry.publish for entry in parts),
        )


def read_loop_report(output: Path) -> LoopReport | None:
    """Report of a finished loop; None for an unfinished one. Raises `UnreadableModel`."""
    path = output / REPORT
    return find_record(path, LoopReport)


def last_line(report: LoopReport) -> dict[str, object]:
    """The loop in numbers, for one line of JSON."""
    rounds, seconds = report.rounds, report.seconds
    return {
        "rounds": len(rounds),
        "version": report.version,
        "served": report.served,
        "puzzles": sum(round_facts.puzzles for round_facts in rounds),
        "runs": report.runs,
        "broken_runs": report.broken,
        "groups": sum(round_facts.groups for round_facts in rounds),
        "trained_groups": sum(round_facts.trained for round_facts in rounds),
        "zero_variance_groups": sum(round_facts.zero_variance for round_facts in rounds),
        "truncated_groups": sum(round_facts.truncated for round_facts in rounds),
        "stale_groups": sum(round_facts.stale + round_facts.foreign for round_facts in rounds),
        "skipped": report.left_out,
        "success": [round(round_facts.success, 4) for round_facts in rounds],
        "agreement": [
            None if round_facts.agreement is None else round(round_facts.agreement, 4)
            for round_facts in rounds
        ],
        "seconds": {name: round(value, 3) for name, value in seconds.model_dump().items()},
        "wait_share": round(seconds.wait / max(seconds.total, 1e-9), 4),
        "minutes": round(seconds.total / 60, 3),
        "held_out": {str(look.round): round(look.success, 4) for look in report.looks},
        "best_round": None if report.best is None else report.best.round,
        "stopped_early": report.stopped_early,
        "levels": _level_lines(rounds),
        "policies": {name: row.model_dump() for name, row in summaries(report.steps).items()},
    }


def _level_lines(rounds: Sequence[RoundFacts]) -> dict[str, dict[str, list[float]]]:
    """Share of the puzzles and solve rate of each level, in each round that played it."""
    lines: dict[str, dict[str, list[float]]] = {}
    for round_facts in rounds:
        for name, facts in round_facts.levels.items():
            line = lines.setdefault(name, {"share": [], "success": []})
            line["share"].append(round(facts.share, 4))
            line["success"].append(round(facts.success, 4))
    return lines


def _sum_counts(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for mapping in counts for name in mapping)
    return {name: sum(mapping.get(name, 0) for mapping in counts) for name in names}

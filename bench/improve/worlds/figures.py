"""What streams of instructions come to: what the team learned and what it forgot, each with its
bar, and the dollars."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from loopline.agents.records import Record
from loopline.bench.improve.figures import Bounds, Stretch, difference, quarters_of, total
from loopline.bench.improve.worlds.stream import WorldsResult
from loopline.trainers.core.paired_statistics import bootstrap_difference

SOLVED_BAR = 0.0
OLD_BAR = -1.0
"""Percentage points; the first of the interval's lower end, the second of the estimate."""


class WorldsReport(Record):
    """All figures."""

    results: tuple[WorldsResult, ...]

    @property
    def quarters(self) -> tuple[Stretch, ...]:
        """Of all seeds together."""
        parts = [quarters_of(result) for result in self.results]
        return tuple(total(same) for same in zip(*parts, strict=True))

    @property
    def dollars_ratio(self) -> float:
        """Of an instruction in the last quarter to one in the first."""
        first, *_, last = self.quarters
        return last.dollars / first.dollars if first.dollars else math.inf

    @property
    def accuracy_change(self) -> Bounds:
        """From the first quarter to the last, in points, by the team or the big model."""
        first, *_, last = self.quarters
        return difference(last.right, last.questions, first.right, first.questions)

    @property
    def solved_change(self) -> Bounds:
        """Of the team alone on held-out instructions of the new kinds, paired, in points."""
        return _change(
            [right for result in self.results for right in result.new_before],
            [right for result in self.results for right in result.new_after],
        )

    @property
    def old_change(self) -> Bounds:
        """The same of the old kinds."""
        return _change(
            [right for result in self.results for right in result.old_before],
            [right for result in self.results for right in result.old_after],
        )

    @property
    def lost(self) -> int:
        return sum(result.lost for result in self.results)

    @property
    def altered(self) -> int:
        return sum(result.altered for result in self.results)

    @property
    def attacks(self) -> Counter[str]:
        """Name → how often."""
        return sum((Counter(result.attacks) for result in self.results), Counter[str]())

    @property
    def poison_caught(self) -> bool | None:
        """None where no batch was poisoned."""
        poisoned = [result.poisoned for result in self.results if result.poisoned is not None]
        return not any(decision.promoted for decision in poisoned) if poisoned else None

    @property
    def bars(self) -> dict[str, bool]:
        """Name → whether it is held."""
        return {
            "solved_change_low": self.solved_change.low > SOLVED_BAR,
            "old_change": self.old_change.estimate >= OLD_BAR,
            "lost": self.lost == 0,
            "altered": self.altered == 0,
            "poison_caught": self.poison_caught is not False,
        }

    @property
    def passed(self) -> bool:
        return all(self.bars.values())

    def as_json(self) -> dict[str, Any]:
        """The line of `--json`."""
        solved, old, accuracy = self.solved_change, self.old_change, self.accuracy_change
        return {
            "solved_change": solved.estimate,
            "solved_change_low": solved.low,
            "solved_change_high": solved.high,
            "old_change": old.estimate,
            "old_change_low": old.low,
            "old_change_high": old.high,
            "dollars_ratio": self.dollars_ratio,
            "accuracy_change": accuracy.estimate,
            "accuracy_change_low": accuracy.low,
            "lost": self.lost,
            "altered": self.altered,
            "attacks": self.attacks,
            "poison_caught": self.poison_caught,
            "passed": self.passed,
            "bars": self.bars,
            "quarters": [
                {**quarter.model_dump(), "usd_per_question": quarter.dollars}
                for quarter in self.quarters
            ],
            "seeds": [seed_facts(result) for result in self.results],
        }


def seed_facts(result: WorldsResult) -> dict[str, Any]:
    """Of one seed, in short."""
    first, *_, last = quarters_of(result)
    return {
        "seed": result.settings.seed,
        "dollars_ratio": last.dollars / first.dollars if first.dollars else math.inf,
        "accuracy": [quarter.accuracy for quarter in quarters_of(result)],
        "accepted": [quarter.accepted / quarter.questions for quarter in quarters_of(result)],
        "new_before": share_of(result.new_before),
        "new_after": share_of(result.new_after),
        "old_before": share_of(result.old_before),
        "old_after": share_of(result.old_after),
        "promoted": [decision.promoted for _, decision in result.rounds],
        "attacks": result.attacks,
        "cpu_minutes": result.cpu_seconds / 60,
        "settings": result.settings.model_dump(mode="json"),
    }


def share_of(solved: Sequence[bool]) -> float:
    return sum(solved) / len(solved)


def _change(before: Sequence[bool], after: Sequence[bool]) -> Bounds:
    gap = bootstrap_difference([float(right) for right in after], [float(r) for r in before])
    return Bounds(estimate=gap.estimate * 100, low=gap.low * 100, high=gap.high * 100)

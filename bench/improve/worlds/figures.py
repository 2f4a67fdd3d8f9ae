"""Results of streams of instructions: the team's learning and forgetting, each with its bar, and
the dollars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopline.bench.improve.figures import Bounds, LoopReport, common_seed_facts, paired_change
from loopline.bench.improve.worlds.stream import WorldsResult

SOLVED_BAR = 0.0
OLD_BAR = -1.0
"""Bars in percentage points: the first applies to the interval's lower end, the second to the
estimate."""


class WorldsReport(LoopReport):
    """All figures of a stream of instructions."""

    results: tuple[WorldsResult, ...]

    @property
    def streams(self) -> tuple[WorldsResult, ...]:
        return self.results

    @property
    def solved_change(self) -> Bounds:
        """Paired change in the share of held-out instructions of the new kinds that the team alone
        solves, in points."""
        return paired_change(
            [right for result in self.results for right in result.new_before],
            [right for result in self.results for right in result.new_after],
        )

    @property
    def old_change(self) -> Bounds:
        """The same change for the old kinds."""
        return paired_change(
            [right for result in self.results for right in result.old_before],
            [right for result in self.results for right in result.old_after],
        )

    @property
    def bars(self) -> dict[str, bool]:
        """Whether each bar is met, by name."""
        return {
            "solved_change_low": self.solved_change.low > SOLVED_BAR,
            "old_change": self.old_change.estimate >= OLD_BAR,
            "lost": self.lost == 0,
            "altered": self.altered == 0,
            "poison_caught": self.poison_caught is not False,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the `--json` line."""
        solved, old = self.solved_change, self.old_change
        return {
            **self.common_json,
            "solved_change": solved.estimate,
            "solved_change_low": solved.low,
            "solved_change_high": solved.high,
            "old_change": old.estimate,
            "old_change_low": old.low,
            "old_change_high": old.high,
            "seeds": [seed_facts(result) for result in self.results],
        }


def seed_facts(result: WorldsResult) -> dict[str, Any]:
    """Summary of one seed."""
    return {
        **common_seed_facts(result),
        "new_before": share_of(result.new_before),
        "new_after": share_of(result.new_after),
        "old_before": share_of(result.old_before),
        "old_after": share_of(result.old_after),
        "promoted": [decision.promoted for _, decision in result.rounds],
        "settings": result.settings.model_dump(mode="json"),
    }


def share_of(solved: Sequence[bool]) -> float:
    return sum(solved) / len(solved)

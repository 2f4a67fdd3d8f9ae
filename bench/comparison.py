"""Two benchmarks against each other, question by question: before and after a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.output import OutputDirectory
from bench.report.computation import facts_of
from bench.report.facts import ArmRuns, Facts
from bench.statistics import (
    Interval,
    PairedTable,
    bootstrap_difference,
    mcnemar_exact,
    paired_table,
)


@dataclass(frozen=True)
class Compared:
    """One arm of A against one arm of B, on the questions that both were asked."""

    arm_a: str
    arm_b: str
    table: PairedTable
    p: float
    accuracy: Interval
    """A − B, of shares."""
    tokens: Interval
    """A − B, per question."""
    micro_dollars: Interval
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        n = self.table.n or 1
        return {
            "a": self.arm_a,
            "b": self.arm_b,
            "n": self.table.n,
            "accuracy_a": (self.table.both + self.table.only_a) / n,
            "accuracy_b": (self.table.both + self.table.only_b) / n,
            "both": self.table.both,
            "only_a": self.table.only_a,
            "only_b": self.table.only_b,
            "neither": self.table.neither,
            "p": self.p,
            **{
                name: [interval.estimate, interval.low, interval.high]
                for name, interval in (
                    ("difference", self.accuracy),
                    ("tokens", self.tokens),
                    ("micro_dollars", self.micro_dollars),
                )
            },
            "items_only_a": list(self.only_a),
            "items_only_b": list(self.only_b),
        }


def compare_directories(a: Path, b: Path, arms: Sequence[tuple[str, str]] = ()) -> list[Compared]:
    """Compare pairs of arms; without `arms`, every arm that both have with itself.

    Raises UsageError when there is nothing to pair, or when the same id means different questions.
    """
    left, right = facts_of(OutputDirectory(a)), facts_of(OutputDirectory(b))
    for item in left.items.keys() & right.items.keys():
        ours, theirs = left.items[item], right.items[item]
        if (ours.question, ours.gold) != (theirs.question, theirs.gold):
            raise UsageError(
                f"{item} is not the same question in {a} and {b}: they were asked of different data"
            )
    by_a, by_b = ({arm.name: arm for arm in facts.arms} for facts in (left, right))
    pairs = list(arms) or [(name, name) for name in by_a if name in by_b]
    if not pairs:
        raise UsageError(
            f"{a} has the arms {', '.join(by_a)} and {b} has {', '.join(by_b)}: none in common; "
            "say which to pair by --arms ONE:OTHER"
        )
    for ours, theirs in pairs:
        for name, known, path in ((ours, by_a, a), (theirs, by_b, b)):
            if name not in known:
                raise UsageError(f"{path} has no arm {name!r}; it has: {', '.join(known)}")
    return [_compare(by_a[x], by_b[y], left, (a, b)) for x, y in pairs]


def _compare(a: ArmRuns, b: ArmRuns, facts: Facts, paths: tuple[Path, Path]) -> Compared:
    ours, theirs = a.by_item(), b.by_item()
    shared = [item for item in ours if item in theirs]
    if not shared:
        raise UsageError(
            f"{paths[0]} ({a.name}) and {paths[1]} ({b.name}) have no question in common; a "
            "paired comparison needs the same data set, seed and samples"
        )
    right_a = [ours[item].right for item in shared]
    right_b = [theirs[item].right for item in shared]
    table = paired_table(right_a, right_b)

    def difference(what: str) -> Interval:
        return bootstrap_difference(
            [float(getattr(a.spent_on(ours[item]), what)) for item in shared],
            [float(getattr(b.spent_on(theirs[item]), what)) for item in shared],
            seed=facts.manifest.seed,
        )

    return Compared(
        a.name,
        b.name,
        table,
        mcnemar_exact(table.only_a, table.only_b),
        bootstrap_difference(
            [float(x) for x in right_a], [float(x) for x in right_b], seed=facts.manifest.seed
        ),
        difference("tokens"),
        difference("micro_dollars"),
        tuple(i for i, x, y in zip(shared, right_a, right_b, strict=True) if x and not y),
        tuple(i for i, x, y in zip(shared, right_a, right_b, strict=True) if y and not x),
    )

"""Two benchmarks against each other, question by question: before and after a change.

Where questions were asked several times, each counts by the mean of its attempts: attempts at one
are not an independent evidence, and none of A's belongs to one of B's.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from loopline.agents.records import JsonObject
from loopline.bench.errors import UsageError
from loopline.bench.output import ManifestItem, OutputDirectory
from loopline.bench.report.computation import facts_of
from loopline.bench.report.facts import ArmRuns, Facts
from loopline.bench.results import Result
from loopline.bench.statistics import (
    Interval,
    PairedTable,
    bootstrap_difference,
    mcnemar_exact,
    paired_table,
)
from loopline.bench.teams.findings import instances_of
from loopline.trainers.core.checkpoints import changed_settings

SHOWN = 300
"""Characters of what differs between two items."""


@dataclass(frozen=True)
class ArmComparison:
    """One arm of A against one arm of B, on the questions that both were asked."""

    arm_a: str
    arm_b: str
    questions: int
    attempts: int
    """Runs of each arm: more than questions where these were asked several times."""
    accuracy_a: float
    accuracy_b: float
    table: PairedTable | None
    """Of right answers; None where questions were asked several times."""
    p: float | None
    """McNemar's; None without a table."""
    accuracy: Interval
    """A − B, of shares."""
    tokens: Interval
    """A − B, per run."""
    micro_dollars: Interval
    only_a: tuple[str, ...]
    """Questions that A alone has answered rightly; none without a table."""
    only_b: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what is of the table is null without one."""
        table = self.table
        return {
            "a": self.arm_a,
            "b": self.arm_b,
            "n": self.questions,
            "attempts": self.attempts,
            "accuracy_a": self.accuracy_a,
            "accuracy_b": self.accuracy_b,
            "both": table and table.both,
            "only_a": table and table.only_a,
            "only_b": table and table.only_b,
            "neither": table and table.neither,
            "p": self.p,
            **{
                name: [interval.estimate, interval.low, interval.high]
                for name, interval in (
                    ("difference", self.accuracy),
                    ("tokens", self.tokens),
                    ("micro_dollars", self.micro_dollars),
                )
            },
            "items_only_a": table and list(self.only_a),
            "items_only_b": table and list(self.only_b),
        }


def compare_directories(
    a: Path, b: Path, arms: Sequence[tuple[str, str]] = ()
) -> list[ArmComparison]:
    """Compare pairs of arms; without `arms`, every arm that both have with itself.

    Raises UsageError when there is nothing to pair, or when the same id means different questions
    or the same one played by other rules.
    """
    left, right = facts_of(OutputDirectory(a)), facts_of(OutputDirectory(b))
    for item, entry_a in left.items.items():
        entry_b = right.items.get(item)
        if entry_b is not None:
            _require_same(entry_a, entry_b, (a, b))
    by_a, by_b = ({arm.name: arm for arm in facts.arms} for facts in (left, right))
    pairs = list(arms) or [(name, name) for name in by_a if name in by_b]
    if not pairs:
        raise UsageError(
            f"{a} has the arms {', '.join(by_a)} and {b} has {', '.join(by_b)}: none in common; "
            "say which to pair by --arms ONE:OTHER"
        )
    for entry_a, entry_b in pairs:
        for name, arms_by_name, path in ((entry_a, by_a, a), (entry_b, by_b, b)):
            if name not in arms_by_name:
                raise UsageError(f"{path} has no arm {name!r}; it has: {', '.join(arms_by_name)}")
    return [_compare(by_a[x], by_b[y], left, (a, b)) for x, y in pairs]


def _require_same(item_a: ManifestItem, item_b: ManifestItem, paths: tuple[Path, Path]) -> None:
    """Raises UsageError."""
    if (item_a.question, item_a.gold) != (item_b.question, item_b.gold):
        raise UsageError(
            f"{item_a.id} is not the same question in {paths[0]} and {paths[1]}: they were asked "
            "of "
            "different data"
        )
    changed = changed_settings(_task(item_a), _task(item_b))
    if changed:
        summary = textwrap.shorten(", ".join(changed), SHOWN, placeholder=" …")
        raise UsageError(
            f"{item_a.id} was not played alike in {paths[0]} and {paths[1]}: {summary}; a paired "
            "comparison needs the same rules, as --setting says them"
        )


def _task(item: ManifestItem) -> JsonObject:
    """What is played, by which rules. Not who plays: that is an arm's own."""
    if item.task is None:
        return {}
    environment, instance = item.task
    setting = instance.get("setting")
    rules = setting if isinstance(setting, dict) else {}
    played = {**instance, "setting": {name: rules[name] for name in rules if name != "team"}}
    return {"environment": environment, **played}


def _compare(a: ArmRuns, b: ArmRuns, facts: Facts, paths: tuple[Path, Path]) -> ArmComparison:
    runs_a, runs_b = a.by_item(), b.by_item()
    shared = [item for item in runs_a if item in runs_b]
    if not shared:
        raise UsageError(
            f"{paths[0]} ({a.name}) and {paths[1]} ({b.name}) have no question in common; a "
            "paired comparison needs the same data set, seed and samples"
        )
    instance_of = instances_of(facts.manifest)
    questions: dict[str, list[str]] = {}
    for item in shared:
        questions.setdefault(instance_of[item], []).append(item)

    def means(runs: dict[str, Result], value: Callable[[Result], float]) -> list[float]:
        return [fmean(value(runs[item]) for item in items) for items in questions.values()]

    def spent(what: str) -> Interval:
        return bootstrap_difference(
            means(runs_a, lambda run: float(getattr(a.spent_on(run), what))),
            means(runs_b, lambda run: float(getattr(b.spent_on(run), what))),
            seed=facts.manifest.seed,
        )

    right_a, right_b = (means(runs, lambda run: float(run.right)) for runs in (runs_a, runs_b))
    table = None
    if len(questions) == len(shared):
        table = paired_table([x > 0 for x in right_a], [y > 0 for y in right_b])
    pairs = list(zip(shared, right_a, right_b, strict=True)) if table else []
    return ArmComparison(
        arm_a=a.name,
        arm_b=b.name,
        questions=len(questions),
        attempts=len(shared),
        accuracy_a=fmean(right_a),
        accuracy_b=fmean(right_b),
        table=table,
        p=table and mcnemar_exact(table.only_a, table.only_b),
        accuracy=bootstrap_difference(right_a, right_b, seed=facts.manifest.seed),
        tokens=spent("tokens"),
        micro_dollars=spent("micro_dollars"),
        only_a=tuple(item for item, x, y in pairs if x > y),
        only_b=tuple(item for item, x, y in pairs if y > x),
    )

"""The facts of a report: the finished runs of each arm, and figures computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loopline.agents.records import Outcome
from loopline.bench.benchmark import Benchmark
from loopline.bench.ledger import Sum
from loopline.bench.output import Manifest, ManifestItem
from loopline.bench.results import Result

REPORT_VERSION = 1
BROKEN = (Outcome.ERROR, Outcome.DEADLINE)
"""Outcomes without any answer, not even a wrong one."""


@dataclass
class ArmRuns:
    """The finished runs of one arm, in the order of the questions."""

    name: str
    results: list[Result] = field(default_factory=list[Result])
    classes: dict[str, str] = field(default_factory=dict[str, str])
    """Class by item."""
    paid: Sum = field(default_factory=Sum)
    """Calls whose results were used."""
    discarded: Sum = field(default_factory=Sum)
    """Calls that were paid for but not used, for example because their worker had lost its
    lease."""
    pools: dict[str, Sum] = field(default_factory=dict[str, Sum])
    per_run: dict[str, Sum] = field(default_factory=dict[str, Sum])

    def right(self, checker: str | None = None) -> int:
        """Number of answers that a checker accepts (default: the primary one)."""
        if checker is None:
            return sum(result.right for result in self.results)
        return sum(result.verdicts[checker] for result in self.results)

    def spent_on(self, result: Result) -> Sum:
        return self.per_run.get(result.run_id, Sum())

    def by_item(self) -> dict[str, Result]:
        return {result.item: result for result in self.results}

    def broken(self) -> list[Result]:
        return [result for result in self.results if result.outcome in BROKEN]


@dataclass
class Facts:
    """Facts that report writers need."""

    benchmark: Benchmark
    manifest: Manifest
    arms: list[ArmRuns]
    items: dict[str, ManifestItem]
    results: dict[str, Any]
    timings: dict[str, Any]
    notices: list[str]

    @property
    def checkers(self) -> Mapping[str, str]:
        """Rule of each checker, the primary one first."""
        return self.benchmark.checkers

    @property
    def primary(self) -> str:
        return next(iter(self.checkers))

    @property
    def classes(self) -> dict[str, str]:
        """Meanings of the classes that have results, in a report's order."""
        present = {name for arm in self.arms for name in arm.classes.values()}
        meanings = self.benchmark.class_meanings
        return {name: meanings[name] for name in meanings if name in present}

    @property
    def broken_arms(self) -> list[str]:
        """Arms in which every run broke."""
        return [arm.name for arm in self.arms if arm.results and arm.broken() == arm.results]

    def as_json(self) -> dict[str, Any]:
        return {"version": REPORT_VERSION, "results": self.results, "timings": self.timings}

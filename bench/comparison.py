"""Compares two benchmarks question by question, for example before and after a change. Each may be
an output directory of ours or another tool's evaluation file. If questions were asked several
times, each counts with the mean of its attempts: attempts at one question are not independent
evidence, and no attempt of A corresponds to one of B.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from loopline.agents.records import JsonObject
from loopline.bench.errors import UsageError
from loopline.bench.interchange.evaluations import name_some
from loopline.bench.interchange.imported import import_evaluation, is_foreign, read_evaluation
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
from loopline.bench.text_answers import SCORE
from loopline.trainers.core.checkpoints import changed_settings

SHOWN = 300
"""Maximum length of a quoted difference between two items, in characters."""


@dataclass(frozen=True)
class ArmComparison:
    """One arm of A against one arm of B, on the questions that both were asked."""

    arm_a: str
    arm_b: str
    questions: int
    attempts_a: int
    """Runs of A's arm on these questions; more than `questions` if they were asked several
    times."""
    attempts_b: int
    accuracy_a: float
    """Share of right answers; for an imported evaluation, the mean score."""
    accuracy_b: float
    table: PairedTable | None
    """Paired table of right answers; None if questions were asked several times, or if scores are
    shares."""
    p: float | None
    """McNemar's p-value; None without a table."""
    accuracy: Interval
    """A − B, as a difference of shares."""
    tokens: Interval | None
    """A − B, per run; None if the tokens are unknown."""
    micro_dollars: Interval | None
    """A − B, per run; None if the prices are unknown."""
    only_a: tuple[str, ...]
    """Questions that only A answered correctly; empty without a table."""
    only_b: tuple[str, ...]
    unmatched_a: tuple[str, ...]
    """Questions that A's arm was asked, but not B's."""
    unmatched_b: tuple[str, ...]

    @property
    def several_attempts(self) -> bool:
        """Whether a side was asked a question more than once."""
        return max(self.attempts_a, self.attempts_b) > self.questions

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; the table's fields are null without a table."""
        table = self.table
        return {
            "a": self.arm_a,
            "b": self.arm_b,
            "n": self.questions,
            "attempts_a": self.attempts_a,
            "attempts_b": self.attempts_b,
            "accuracy_a": self.accuracy_a,
            "accuracy_b": self.accuracy_b,
            "both": table and table.both,
            "only_a": table and table.only_a,
            "only_b": table and table.only_b,
            "neither": table and table.neither,
            "p": self.p,
            **{
                name: interval and [interval.estimate, interval.low, interval.high]
                for name, interval in (
                    ("difference", self.accuracy),
                    ("tokens", self.tokens),
                    ("micro_dollars", self.micro_dollars),
                )
            },
            "items_only_a": table and list(self.only_a),
            "items_only_b": table and list(self.only_b),
            "unmatched_a": list(self.unmatched_a),
            "unmatched_b": list(self.unmatched_b),
        }


@dataclass(frozen=True)
class _Side:
    """One of the two benchmarks."""

    path: Path
    facts: Facts
    format: str | None
    """Format of an imported evaluation, else None."""
    notices: tuple[str, ...] = ()

    @property
    def arms(self) -> dict[str, ArmRuns]:
        return {arm.name: arm for arm in self.facts.arms}

    def value(self, result: Result) -> float:
        """Return a run's score: 0 or 1, or the score from another tool."""
        if self.format is None:
            return float(result.right)
        return result.measures[SCORE]

    def by_question(self, arm: ArmRuns) -> dict[str, list[Result]]:
        """Return the attempts at each question, in the order of the questions."""
        instance_of = instances_of(self.facts.manifest)
        attempts: dict[str, list[Result]] = defaultdict(list)
        for result in arm.results:
            attempts[instance_of[result.item]].append(result)
        return dict(attempts)

    def questions(self) -> dict[str, ManifestItem]:
        """First item of each question, by question."""
        instance_of = instances_of(self.facts.manifest)
        questions: dict[str, ManifestItem] = {}
        for item in self.facts.manifest.items:
            # A team's attempts have their own seeds, so they are compared item by item.
            key = instance_of[item.id] if self.format else item.id
            questions.setdefault(key, item)
        return questions


@dataclass(frozen=True)
class Comparison:
    """Comparisons of all pairs of arms, with notices for readers of the figures."""

    arms: tuple[ArmComparison, ...]
    notices: tuple[str, ...]


def compare_paths(
    a: Path,
    b: Path,
    arms: Sequence[tuple[str, str]] = (),
    scorers: tuple[str | None, str | None] = (None, None),
) -> Comparison:
    """Compare pairs of arms. Without `arms`, pair every common arm with itself, or else, if either
    side is an imported evaluation, each of A's arms with each of B's. `scorers` selects a scorer in
    A's and B's imported file; it has no effect on an output directory.

    Raises UsageError if there is nothing to pair, or if an id means different questions, or the
    same question under different rules; DataError for a file that can't be read.
    """
    left, right = _side(a, scorers[0]), _side(b, scorers[1])
    notices = (*left.notices, *right.notices, *_require_same_questions(left, right))
    by_a, by_b = left.arms, right.arms
    pairs = list(arms) or [(name, name) for name in by_a if name in by_b]
    if not pairs and (left.format or right.format):
        pairs = [(x, y) for x in by_a for y in by_b]
    if not pairs:
        raise UsageError(
            f"{a} has the arms {', '.join(by_a)} and {b} has {', '.join(by_b)}: none in common; "
            "choose a pair with --arms ONE:OTHER"
        )
    for entry_a, entry_b in pairs:
        for name, arms_by_name, path in ((entry_a, by_a, a), (entry_b, by_b, b)):
            if name not in arms_by_name:
                raise UsageError(f"{path} has no arm {name!r}; it has: {', '.join(arms_by_name)}")
    return Comparison(
        tuple(_compare(left, by_a[x], right, by_b[y]) for x, y in pairs), tuple(notices)
    )


def _side(path: Path, scorer: str | None) -> _Side:
    if is_foreign(path):
        imported = import_evaluation(read_evaluation(path), scorer)
        return _Side(path, imported.facts(), _format(imported.facts()), imported.notices)
    facts = facts_of(OutputDirectory(path))
    return _Side(path, facts, _format(facts))


def _format(facts: Facts) -> str | None:
    """Format of the imported evaluation; None for any other benchmark."""
    if not facts.benchmark.attempts:
        return None
    return str(facts.manifest.reference.get("format", "imported"))


def _require_same_questions(left: _Side, right: _Side) -> list[str]:
    """Check that shared ids mean the same questions; return notices if texts differ between
    formats, since some formats include the prompt in the text. Raises UsageError."""
    paths = left.path, right.path
    questions_a, questions_b = left.questions(), right.questions()
    shared = [(item, questions_b[key]) for key, item in questions_a.items() if key in questions_b]
    if left.format is None and right.format is None:
        for item_a, item_b in shared:
            _require_same(item_a, item_b, paths)
        return []
    if left.format == right.format:
        for item_a, item_b in shared:
            if item_a.question != item_b.question and item_a.gold != item_b.gold:
                raise _other_question(item_a, paths)
    notices: list[str] = []
    for what in ("question", "gold"):
        ids = tuple(x.id for x, y in shared if getattr(x, what) != getattr(y, what))
        if ids:
            name = "target" if what == "gold" else "text"
            notices.append(
                f"paired by id although the {name} differs: {len(ids):,} of {len(shared):,} "
                f"questions ({name_some(ids)})"
            )
    return notices


def _other_question(item: ManifestItem, paths: tuple[Path, Path]) -> UsageError:
    return UsageError(
        f"{item.id} is not the same question in {paths[0]} and {paths[1]}: the benchmarks used "
        "different data"
    )


def _require_same(item_a: ManifestItem, item_b: ManifestItem, paths: tuple[Path, Path]) -> None:
    """Raises UsageError."""
    if (item_a.question, item_a.gold) != (item_b.question, item_b.gold):
        raise _other_question(item_a, paths)
    changed = changed_settings(_task(item_a), _task(item_b))
    if changed:
        summary = textwrap.shorten(", ".join(changed), SHOWN, placeholder=" …")
        raise UsageError(
            f"{item_a.id} was played with different rules in {paths[0]} and {paths[1]}: {summary}; "
            "a paired comparison needs the same rules (--setting)"
        )


def _task(item: ManifestItem) -> JsonObject:
    """Return the game and its rules without the players, which belong to the arm."""
    if item.task is None:
        return {}
    environment, instance = item.task
    setting = instance.get("setting")
    rules = setting if isinstance(setting, dict) else {}
    played = {**instance, "setting": {name: rules[name] for name in rules if name != "team"}}
    return {"environment": environment, **played}


def _compare(left: _Side, a: ArmRuns, right: _Side, b: ArmRuns) -> ArmComparison:
    runs_a, runs_b = left.by_question(a), right.by_question(b)
    shared = [question for question in runs_a if question in runs_b]
    if not shared:
        raise UsageError(
            f"{left.path} ({a.name}) and {right.path} ({b.name}) have no question in common; a "
            "paired comparison needs the same data set, seed and samples"
            + _some_ids(runs_a, runs_b)
        )
    seed = left.facts.manifest.seed

    def means(runs: Mapping[str, list[Result]], value: Callable[[Result], float]) -> list[float]:
        return [fmean(map(value, runs[question])) for question in shared]

    def spent(what: str) -> Interval:
        return bootstrap_difference(
            means(runs_a, lambda run: float(getattr(a.spent_on(run), what))),
            means(runs_b, lambda run: float(getattr(b.spent_on(run), what))),
            seed=seed,
        )

    right_a, right_b = means(runs_a, left.value), means(runs_b, right.value)
    attempts_a, attempts_b = (
        sum(len(runs[question]) for question in shared) for runs in (runs_a, runs_b)
    )
    table = None
    # The test needs right or wrong; a mean of attempts, or a share, is neither.
    if attempts_a == attempts_b == len(shared) and {*right_a, *right_b} <= {0.0, 1.0}:
        table = paired_table([x > 0 for x in right_a], [y > 0 for y in right_b])
    pairs = list(zip(shared, right_a, right_b, strict=True)) if table else []
    imported = left.format is not None or right.format is not None
    return ArmComparison(
        arm_a=a.name,
        arm_b=b.name,
        questions=len(shared),
        attempts_a=attempts_a,
        attempts_b=attempts_b,
        accuracy_a=fmean(right_a),
        accuracy_b=fmean(right_b),
        table=table,
        p=table and mcnemar_exact(table.only_a, table.only_b),
        accuracy=bootstrap_difference(right_a, right_b, seed=seed),
        tokens=None if imported and not (a.per_run and b.per_run) else spent("tokens"),
        micro_dollars=None if imported else spent("micro_dollars"),
        only_a=tuple(item for item, x, y in pairs if x > y),
        only_b=tuple(item for item, x, y in pairs if y > x),
        unmatched_a=tuple(question for question in runs_a if question not in runs_b),
        unmatched_b=tuple(question for question in runs_b if question not in runs_a),
    )


def _some_ids(runs_a: Mapping[str, object], runs_b: Mapping[str, object]) -> str:
    return f" (A has {name_some(tuple(runs_a))}; B has {name_some(tuple(runs_b))})"

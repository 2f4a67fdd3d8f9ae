"""The figures of the report: each λ with its intervals, its distance above the fronts of the
untrained planner and of cascades, and the verdicts.

An interval resamples seeds and questions together (`pigeonhole_bootstrap`), paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from loopline.agents.records import Record
from loopline.bench.experiments.delegation_front.cells import (
    FrontSettings,
    cells_of,
    read_answers,
    read_planner,
)
from loopline.bench.experiments.delegation_front.front import Rule, gaps, undominated
from loopline.bench.experiments.delegation_front.rules import rules_of
from loopline.bench.experiments.harness import Bounds
from loopline.bench.statistics import pigeonhole_bootstrap

UNTRAINED, CASCADES, SCORED = "untrained", "cascades", "scored"
BASELINES = {
    UNTRAINED: "the untrained planner's",
    CASCADES: "that of cascades by log-probability",
    SCORED: "that of cascades by a learned score",
}


class RuleFigures(Record):
    """Figures of any rule."""

    name: str
    accuracy: Bounds
    """Share of the held-out questions answered correctly."""
    dollars: Bounds
    """US dollars per question."""
    by_seed: tuple[float, ...]
    """Accuracy of each seed."""


class TrainedFigures(RuleFigures):
    """Figures of the planner trained with one λ."""

    dollar_weight: float
    decisions: tuple[float, ...]
    """Shares of the questions that the planner answers itself, hands over whole and splits."""
    on_front: bool
    """Whether no other λ is at least as accurate at no higher cost, and strictly better in one of
    the two."""
    above: dict[str, Bounds]
    """Accuracy above each baseline's front at the same dollars, by baseline."""


class FrontReport(Record):
    """Figures of the whole bench."""

    settings: FrontSettings
    trained: tuple[TrainedFigures, ...]
    baselines: dict[str, tuple[RuleFigures, ...]] = Field(default_factory=dict)
    """Figures of every setting, by family; rules that treat all questions the same are under
    `alone`."""
    above_untrained: bool
    """Whether the trained front lies above the untrained planner's, beyond the interval, at every λ
    on the trained front."""
    above_cascades: bool
    """The same for cascades by log-probability."""
    above_scored: bool
    """The same for cascades by a learned score."""
    cpu_minutes: float
    """CPU minutes of all cells."""


def report_of(settings: FrontSettings, output: Path) -> FrontReport:
    """Build the report from the results. Raises `OutputError` for a cell without one."""
    rules = rules_of(settings, output)
    families = {UNTRAINED: rules.untrained, CASCADES: rules.cascades, SCORED: rules.scored}
    front = undominated([*rules.trained.values()])
    trained = tuple(
        TrainedFigures(
            **dict(figures_of(rule)),
            dollar_weight=weight,
            decisions=tuple(map(float, rules.decisions[weight])),
            on_front=rule in front,
            above={name: _bounds(rule, family) for name, family in families.items()},
        )
        for weight, rule in rules.trained.items()
    )
    own_settings = {name: [rule for rule in rules_of_family if rule not in rules.alone]
             for name, rules_of_family in families.items()}  # fmt: skip
    return FrontReport(
        settings=settings,
        trained=trained,
        baselines={
            name: tuple(map(figures_of, family))
            for name, family in {**own_settings, "alone": rules.alone}.items()
        },
        above_untrained=lies_above(trained, UNTRAINED),
        above_cascades=lies_above(trained, CASCADES),
        above_scored=lies_above(trained, SCORED),
        cpu_minutes=_cpu_minutes(settings, output),
    )


def figures_of(rule: Rule) -> RuleFigures:
    """Figures of a rule, with intervals over seeds and questions."""
    return RuleFigures(
        name=rule.name,
        accuracy=Bounds.of_seeds(rule.right.tolist(), least=0.0),
        dollars=Bounds.of(pigeonhole_bootstrap(rule.cost.tolist())),
        by_seed=tuple(map(float, rule.right.mean(axis=1))),
    )


def lies_above(trained: Sequence[TrainedFigures], baseline: str) -> bool:
    """Whether the trained front lies above the baseline's, beyond the interval, at every λ on the
    trained front."""
    return all(figures.above[baseline].verdict == "more" for figures in trained if figures.on_front)


def verdict(trained: Sequence[TrainedFigures], baseline: str) -> str:
    """Describe in one sentence where the trained front lies above a baseline's, and where it does
    not."""
    front = [figures for figures in trained if figures.on_front]
    words = {"more": "above it", "no difference found": "no difference found", "less": "below it"}
    places = {
        word: [f"{figures.dollar_weight:g}" for figures in front
               if figures.above[baseline].verdict == verdict_word]
        for verdict_word, word in words.items()
    }  # fmt: skip
    lambdas = "; ".join(f"λ = {', '.join(at)}: {word}" for word, at in places.items() if at)
    lies = "lies" if lies_above(trained, baseline) else "does not lie"
    everywhere = "" if lies == "lies" else " everywhere"
    return f"The trained front {lies}{everywhere} above {BASELINES[baseline]} ({lambdas})"


def _bounds(rule: Rule, family: Sequence[Rule]) -> Bounds:
    return Bounds.of(pigeonhole_bootstrap(gaps(rule, family).tolist()))


def _cpu_minutes(settings: FrontSettings, output: Path) -> float:
    seconds = 0.0
    for cell in cells_of(settings):
        result = (
            read_answers(cell, output) if cell.kind == "answers" else read_planner(cell, output)
        )
        seconds += 0.0 if result is None else result.cpu_seconds
    return round(seconds / 60, 1)

"""Results of the demonstration, computed only from its arms' results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from loopline.agents.records import Record
from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.tables import new_table
from loopline.trainers.core.paired_statistics import wilson
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.kinds import AT_GRPO, CONTINUED, WARM_START, ArmName
from loopline.trainers.grpo.arms.results import ArmResult
from loopline.trainers.grpo.demo.settings import ARMS, DemoSettings

if TYPE_CHECKING:
    from rich.table import Table


class Share(Record):
    """Number and share of the held-out puzzles that were solved."""

    solved: int
    n: int
    low: float
    """Lower end of Wilson's 95 % interval."""
    high: float

    @classmethod
    def of(cls, solved: int, n: int) -> Self:
        """The share with its interval."""
        interval = wilson(solved, n)
        return cls(solved=solved, n=n, low=interval.low, high=interval.high)

    @property
    def rate(self) -> float:
        return self.solved / self.n

    @property
    def shown(self) -> str:
        """`71.8 % (67.1–76.0)`"""
        return f"{self.rate:.1%} ({100 * self.low:.1f}–{100 * self.high:.1f})"


class SeedFindings(Record):
    """The arms of one seed, for comparison."""

    seed: int
    arms: dict[ArmName, Share]
    gain: float
    """Gain of AT-GRPO over the warm start: a difference of shares."""
    over_control: float
    """Gain of AT-GRPO over continued SFT."""
    apart: bool
    """Whether AT-GRPO's interval is above those of both others."""


class DemoReport(Record):
    """The whole demonstration."""

    settings: DemoSettings
    seeds: tuple[SeedFindings, ...]
    baselines: dict[str, Share]
    """Results of hand-written players on the same puzzles."""
    results: tuple[ArmResult, ...]
    success_gain: float
    """Smallest gain of a seed."""
    apart: bool
    """Whether the intervals are apart in every seed."""
    minutes: float
    """Minutes of the wall clock for everything, over all parts of an interrupted run."""
    cpu_minutes: float
    """CPU minutes of training, evaluations and play in all processes; an idle machine needs half of
    that on two cores, plus the start of two processes."""


def report_of(
    settings: DemoSettings,
    results: Sequence[ArmResult],
    baselines: Mapping[str, Share],
    minutes: float,
) -> DemoReport:
    """Build the report from the results of every arm of every seed."""
    seed_findings = tuple(_findings(seed, results) for seed in settings.seeds)
    return DemoReport(
        settings=settings,
        seeds=seed_findings,
        baselines=dict(baselines),
        results=tuple(results),
        success_gain=round(min(entry.gain for entry in seed_findings), 4),
        apart=all(entry.apart for entry in seed_findings),
        minutes=round(minutes, 3),
        cpu_minutes=round(sum(entry.cpu_seconds for entry in results) / 60, 3),
    )


def _findings(seed: int, results: Sequence[ArmResult]) -> SeedFindings:
    results_by_arm = {result.arm: result for result in results if result.seed == seed}
    absent = [name for name in ARMS if name not in results_by_arm]
    if absent:
        raise TrainingError(f"seed {seed} has no result of {absent[0]}: let the command finish")
    arms: dict[ArmName, Share] = {
        name: Share.of(results_by_arm[name].solved, len(results_by_arm[name].outcomes))
        for name in ARMS
    }
    learned, others = arms[AT_GRPO], (arms[WARM_START], arms[CONTINUED])
    return SeedFindings(
        seed=seed,
        arms=arms,
        gain=learned.rate - arms[WARM_START].rate,
        over_control=learned.rate - arms[CONTINUED].rate,
        apart=all(learned.low > baseline.high for baseline in others),
    )


def findings_table(report: DemoReport) -> Table:
    """Seeds against arms, for a terminal."""
    table = new_table("seed", *ARMS, "gain", "over SFT", words=("seed",))
    for row in report.seeds:
        table.add_row(
            str(row.seed),
            *(row.arms[name].shown for name in ARMS),
            f"{100 * row.gain:+.1f}",
            f"{100 * row.over_control:+.1f}",
        )
    return table


def compute_table(report: DemoReport) -> Table:
    """The cost of each arm, and its failures by kind."""
    table = new_table(
        "arm", "seed", "steps", "tokens", "CPU-s training", "agreement", "failures",
        words=("arm", "failures"),
    )  # fmt: skip
    for result in report.results:
        table.add_row(
            result.arm,
            str(result.seed),
            f"{result.steps:,}",
            f"{result.tokens:,}",
            f"{result.train_cpu_seconds:,.0f}",
            "–" if result.agreement is None else f"{result.agreement:.0%}",
            ", ".join(f"{count} {name}" for name, count in result.failures.items()) or "none",
        )
    return table


def conclusion(report: DemoReport) -> list[str]:
    """The conclusion, in lines."""
    shares = ", ".join(f"{name} {share.rate:.1%}" for name, share in report.baselines.items())
    apart = (
        "its intervals lie above those of both others in every seed"
        if report.apart
        else "its intervals do not lie above those of both others in every seed"
    )
    puzzles = format_count(report.settings.held_out, "puzzle")
    ended_early = [
        f"seed {result.seed}, {result.arm}, ended early: {result.stopped}"
        for result in report.results
        if result.stopped
    ]
    return [
        *ended_early,
        f"by hand, on the same {puzzles}: {shares}",
        f"AT-GRPO gained {100 * report.success_gain:.1f} points of held-out greedy success over "
        f"the warm start in the worst of {format_count(len(report.seeds), 'seed')}; {apart}",
        f"{report.minutes:.1f} minutes, {report.cpu_minutes:.1f} CPU-minutes",
    ]


def behaviour(report: DemoReport) -> list[str]:
    """The most frequent answers of the first seed's agents: they show whether success comes from
    reading the puzzle, or from one answer that fits everywhere."""
    lines: list[str] = []
    for result in report.results:
        if result.seed != report.settings.seeds[0]:
            continue
        for agent, counts in result.answers.items():
            listed = ", ".join(f"{text!r} {count:,}" for text, count in counts.items())
            lines.append(f"seed {result.seed}, {result.arm}, {agent} says: {listed}")
    return lines


def last_line(report: DemoReport) -> dict[str, object]:
    """Values that `--json` prints."""
    return {
        "success_gain": report.success_gain,
        "minutes": report.minutes,
        "cpu_minutes": report.cpu_minutes,
        "intervals_apart": report.apart,
        "held_out": report.settings.held_out,
        "seeds": [
            {
                "seed": row.seed,
                "gain": round(row.gain, 4),
                "over_continued_sft": round(row.over_control, 4),
                **{name: round(share.rate, 4) for name, share in row.arms.items()},
            }
            for row in report.seeds
        ],
        "baselines": {name: round(baseline.rate, 4) for name, baseline in report.baselines.items()},
    }

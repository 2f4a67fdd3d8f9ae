"""The table: the gain of each method over the untrained team, paired by held-out task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopline.agents.records import Record
from loopline.bench.errors import OutputError
from loopline.bench.experiments.document import Document, Section, Table
from loopline.bench.experiments.harness import Bounds
from loopline.bench.experiments.team_grpo.cell import held_out_questions
from loopline.bench.experiments.team_grpo.cells import (
    Cell,
    CellResult,
    Method,
    TeamSettings,
    read_result,
)
from loopline.bench.report.figures import points, share
from loopline.bench.statistics import pigeonhole_bootstrap

LEARNED: tuple[Method, ...] = ("grpo", "expert-iteration")


class MethodFigures(Record):
    """Figures of one method, over all seeds."""

    method: Method
    solved: float
    """Solved share of the held-out tasks, averaged over seeds."""
    dollars: float
    """Mean US dollars per run."""
    gain: Bounds
    """Gain in the solved share over the start, paired by task; with several seeds, the interval
    covers other seeds and other tasks."""
    sentence_gain: Bounds
    """The same gain with equal weight for each distinct sentence and resampling of sentences, not
    tasks: a narrow subject asks one sentence in many worlds, whose outcomes are correlated."""
    reward_gain: Bounds
    """Gain in the reward, which subtracts dollars."""
    by_seed: tuple[float, ...]
    """Solved share of each seed."""
    cpu_minutes: float
    """Mean CPU minutes per training."""
    runs: int
    """Mean number of sampled runs per training."""


class TeamReport(Record):
    """Figures of the whole bench."""

    settings: TeamSettings
    start: float
    """Share of the held-out tasks that the team solves before training."""
    start_dollars: float
    sentences: int
    """Distinct sentences among the held-out tasks."""
    methods: tuple[MethodFigures, ...]
    lead: Bounds
    """Share solved by GRPO minus the share solved by expert iteration, paired by seed and task."""


def report_of(settings: TeamSettings, output: Path) -> TeamReport:
    """Build the report from the results. Raises `OutputError` for a cell without one."""
    start = _result(Cell(method="start"), output)
    results = {
        method: [_result(Cell(method=method, seed=seed), output) for seed in settings.seeds]
        for method in LEARNED
    }
    sentences = [question.task.prompt for question in held_out_questions(settings)]
    return TeamReport(
        settings=settings,
        start=start.solved / len(start.outcomes),
        start_dollars=_dollars(start),
        sentences=len({*sentences}),
        methods=tuple(
            _figures(settings, method, start, results[method], sentences) for method in LEARNED
        ),
        lead=_difference(
            [result.rewards(0.0) for result in results["grpo"]],
            [result.rewards(0.0) for result in results["expert-iteration"]],
        ),
    )


def _difference(after: Sequence[Sequence[float]], before: Sequence[Sequence[float]]) -> Bounds:
    """Bounds of the mean paired difference between two tables [seeds, tasks]. With several seeds,
    both seeds and tasks are resampled."""
    if len(after) == 1:
        return Bounds.paired(after[0], before[0])
    differences = [
        [b - a for a, b in zip(old, new, strict=True)]
        for old, new in zip(before, after, strict=True)
    ]
    return Bounds.of(pigeonhole_bootstrap(differences))


def mean_by_sentence(values: Sequence[float], sentences: Sequence[str]) -> list[float]:
    """Mean value per distinct sentence, in the order of first occurrence. Shapes: both arguments
    (tasks,), result (distinct sentences,). Raises ValueError for lists of different lengths."""
    by_sentence: dict[str, list[float]] = {}
    for sentence, value in zip(sentences, values, strict=True):
        by_sentence.setdefault(sentence, []).append(value)
    return [sum(same) / len(same) for same in by_sentence.values()]


def _figures(
    settings: TeamSettings,
    method: Method,
    start: CellResult,
    results: Sequence[CellResult],
    sentences: Sequence[str],
) -> MethodFigures:
    def gain(weight: float) -> Bounds:
        after = [result.rewards(weight) for result in results]
        return _difference(after, [start.rewards(weight)] * len(after))

    start_by_sentence = mean_by_sentence(start.rewards(0.0), sentences)
    by_sentence = [mean_by_sentence(result.rewards(0.0), sentences) for result in results]
    shares = tuple(result.solved / len(result.outcomes) for result in results)
    return MethodFigures(
        method=method,
        solved=sum(shares) / len(shares),
        dollars=sum(map(_dollars, results)) / len(results),
        gain=gain(0.0),
        sentence_gain=_difference(by_sentence, [start_by_sentence] * len(by_sentence)),
        reward_gain=gain(settings.dollar_weight),
        by_seed=shares,
        cpu_minutes=sum(result.train_cpu_seconds for result in results) / len(results) / 60,
        runs=round(sum(result.runs for result in results) / len(results)),
    )


def document(report: TeamReport) -> Document:
    """Document of the report for a terminal, Markdown and HTML."""
    settings = report.settings
    return Document(
        title=f"Learning for the team of {settings.workflow}",
        about=(
            f"{settings.held_out:,} held-out tasks ({settings.measured_split}), "
            f"{report.sentences:,} distinct sentences; the team is trained on "
            f"{settings.split}{_about(settings)}, seeds "
            f"{', '.join(map(str, settings.seeds))}; before training it solves "
            f"{report.start:.1%}, at ${report.start_dollars:.6f} per run"
        ),
        verdicts=_verdicts(report),
        sections=[Section({"Solved, and gain over the start, paired by task": table(report)})],
    )


def _about(settings: TeamSettings) -> str:
    return f", only about {', '.join(settings.domains)}" if settings.domains else ""


def _verdicts(report: TeamReport) -> list[str]:
    gains = [
        f"{figures.method}: {points(figures.gain.estimate)} points over the start "
        f"({points(figures.gain.low)} to {points(figures.gain.high)}): {figures.gain.verdict}; "
        f"over distinct sentences {points(figures.sentence_gain.estimate)} "
        f"({points(figures.sentence_gain.low)} to {points(figures.sentence_gain.high)}); by "
        f"seed {', '.join(map(share, figures.by_seed))}"
        for figures in report.methods
    ]
    lead = report.lead
    return [
        *gains,
        f"grpo minus expert-iteration: {points(lead.estimate)} points ({points(lead.low)} to "
        f"{points(lead.high)}): {lead.verdict}",
    ]


def table(report: TeamReport) -> Table:
    """Table with one row per method."""
    head = ["method", "solved", "gain", "95 %", "reward", "95 %", "$ per run", "CPU-min", "runs"]
    return head, [
        [
            figures.method,
            share(figures.solved),
            points(figures.gain.estimate),
            f"{points(figures.gain.low)} to {points(figures.gain.high)}",
            f"{figures.reward_gain.estimate:+.3f}",
            f"{figures.reward_gain.low:+.3f} to {figures.reward_gain.high:+.3f}",
            f"{figures.dollars:.6f}",
            f"{figures.cpu_minutes:.1f}",
            f"{figures.runs:,}",
        ]
        for figures in report.methods
    ]


def _dollars(result: CellResult) -> float:
    return sum(result.micro_dollars) / len(result.micro_dollars) / 1e6


def _result(cell: Cell, output: Path) -> CellResult:
    result = read_result(cell, output)
    if result is None:
        raise OutputError(f"{cell.folder(output)} has no result: run the command again")
    return result

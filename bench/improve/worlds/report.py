"""The report of `bench improve --worlds`."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.bench.experiments.document import Document, Section, Table
from loopline.bench.improve.figures import batches_of, quarters_of
from loopline.bench.improve.report import (
    attacks_in_words,
    in_points,
    plot,
    quarter_table,
    verdict_word,
)
from loopline.bench.improve.worlds.figures import (
    OLD_BAR,
    SOLVED_BAR,
    WorldsReport,
    share_of,
)
from loopline.bench.improve.worlds.stream import WorldsResult
from loopline.bench.report.figures import count, dollars, share
from loopline.trainers.improve.team import TeamDecision


def document(report: WorldsReport) -> Document:
    """Document for a terminal, Markdown and HTML."""
    settings = report.results[0].settings
    prices = settings.prices
    about = (
        f"{count(len(report.results))} streams of {count(settings.questions)} instructions in "
        f"simulated worlds, {share(1 - settings.old_share, 0)} of which need APIs that the team "
        f"({settings.loop.model}: planner, caller and summarizer) was never offered. The world's "
        "verifier judges each run; instructions that the team fails go to the big model, an "
        f"endpoint that solves {share(settings.accuracy, 0)}, at ${prices.big_prompt:g} and "
        f"${prices.big_completion:g} per million tokens. The team and its trainings cost GPU "
        f"time, at ${prices.gpu_hour:g} per hour with {prices.prompt_speed:,.0f} tokens read and "
        f"{prices.completion_speed:,.0f} written per second; a CPU second of a training counts as "
        f"a GPU second. {share(settings.kept_back, 0)} of the new instructions are reserved for "
        "comparing versions."
    )
    batches = batches_of(report.results)
    size = settings.batch
    drawings = [
        (plot(batches, size, "Dollars per instruction", lambda s: s.dollars, dollars),
         "Dollars per instruction, including trainings and comparisons"),
        (plot(batches, size, "By the team", lambda s: s.accepted / s.questions,
              lambda value: share(value, 0), top=1.0),
         "Share of the instructions that the team alone solved"),
    ]  # fmt: skip
    tables: dict[str, Table] = {
        "Quarters of the stream, all seeds": quarter_table(report.quarters, "by the team"),
        "Seeds": _seeds(report.results),
        "Rounds": _rounds([(r, at, d) for r in report.results for at, d in r.rounds]),
        "Poisoned batches": _rounds(
            [(r, r.settings.questions, r.poisoned) for r in report.results if r.poisoned]
        ),
    }
    return Document(
        title="Does the closed loop make a team better?",
        about=about,
        sections=[Section(tables=tables, drawings=drawings)],
        verdicts=verdicts(report),
        words=("verdict",),
    )


def verdicts(report: WorldsReport) -> list[str]:
    """Return one sentence per bar, and one for the dollars."""
    bars = report.bars
    lines = [
        f"{verdict_word(bars['solved_change_low'])}: the team alone changes by "
        f"{in_points(report.solved_change)} on instructions of the new kinds that it was never "
        f"asked (bar: above {SOLVED_BAR:g}).",
        f"{verdict_word(bars['old_change'])}: on the old kinds it changes by "
        f"{in_points(report.old_change)} (bar: the estimate not below {OLD_BAR:g}).",
        f"{verdict_word(bars['lost'])}: {report.lost} runs were lost under "
        f"{attacks_in_words(report.attacks)}.",
        f"{verdict_word(bars['altered'])}: {report.altered} instructions were not solved although "
        "the big model followed the oracle's steps.",
        f"An instruction of the last quarter costs {report.dollars_ratio:.2f} × as much as one of "
        "the first; the share that either side solves changes by "
        f"{in_points(report.accuracy_change)}.",
    ]
    if report.poison_caught is not None:
        lines.append(
            f"{verdict_word(bars['poison_caught'])}: batches with swapped steps "
            f"were {'all' if report.poison_caught else 'not all'} caught and rolled back."
        )
    return lines


def _seeds(results: Sequence[WorldsResult]) -> Table:
    head = ["seed", "dollars ratio", "new before", "after", "old before", "after", "CPU minutes"]
    rows: list[list[str]] = []
    for result in results:
        first, *_, last = quarters_of(result)
        rows.append(
            [
                str(result.settings.seed), f"{last.dollars / first.dollars:.2f}",
                share(share_of(result.new_before)), share(share_of(result.new_after)),
                share(share_of(result.old_before)), share(share_of(result.old_after)),
                f"{result.cpu_seconds / 60:.1f}",
            ]
        )  # fmt: skip
    return head, rows


def _rounds(entries: Sequence[tuple[WorldsResult, int, TeamDecision]]) -> Table:
    head = ["seed", "after", "lessons", "new: candidate", "serving", "old: candidate", "at first",
            "verdict", "CPU s"]  # fmt: skip
    rows = [
        [
            str(result.settings.seed), count(at), count(decision.lessons),
            share(decision.gate.candidate), share(decision.gate.serving),
            share(decision.guard.candidate), share(decision.guard.serving),
            "promoted" if decision.promoted else "rolled back", f"{decision.cpu_seconds:.0f}",
        ]
        for result, at, decision in entries
    ]  # fmt: skip
    return head, rows

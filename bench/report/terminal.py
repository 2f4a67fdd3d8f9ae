"""The outcome of a benchmark on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loopline.bench.report import figures as say
from loopline.bench.report.facts import Facts
from loopline.bench.report.measures import format_summary, names_of, pair_rows
from loopline.bench.report.sections import compat_figure, headline, payoffs, title
from loopline.bench.report.sentences import options_sentence, remaining_work
from loopline.bench.teams import tables as players
from loopline.runtime.terminal.tables import new_table

if TYPE_CHECKING:
    from rich.console import Console


def print_report(facts: Facts, path: Path | None = None) -> None:
    """Print tables on stdout, and the path of the full report at the end."""
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    table = new_table(
        *("arm", "right", "accuracy", "95 %", "tokens/\nquestion", "$/1,000", "median\nlatency"),
        words=("arm",),
        title=title(facts),
    )
    for name, arm in facts.results["arms"].items():
        score = arm["accuracy"][facts.primary]
        money = arm["micro_dollars_per_question"]
        table.add_row(
            escape(name),
            f"{score['right']:,}/{arm['n']:,}",
            say.share(score["estimate"]),
            say.span(score["low"], score["high"]),
            say.count(arm["tokens_per_question"], 1),
            say.cost(None if money is None else money / 1000, has_unpriced=bool(arm["unpriced"])),
            say.seconds(facts.timings["arms"][name]["wall"]["p50"]),
        )
    console.print(table)
    settings_line = options_sentence(facts.manifest)
    console.print(settings_line, markup=False, highlight=False, soft_wrap=True)
    print_players(facts, console)
    print_measures(facts, console)
    remaining = remaining_work(facts, path)
    if remaining:
        console.print(f"Not complete. {remaining}", markup=False, highlight=False, soft_wrap=True)
    sentence = headline(facts)
    if sentence:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for sentence in payoffs(facts):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if facts.manifest.compat == "delegate":
        print_compat(facts)
    for notice in facts.notices:
        console.print(f"Notice: {notice}", markup=False, highlight=False, soft_wrap=True)
    if path is not None:
        where = f"Report: {path / 'report.html'}"
        console.print(where, markup=False, highlight=False, soft_wrap=True)


def print_players(facts: Facts, console: Console) -> None:
    """Print the success of hand-written players, and of teams if any played."""
    from rich.markup import escape

    player_rows = players.rows(facts)
    if player_rows:
        table = new_table(*players.HEAD, words=("player",), title=escape(facts.manifest.source))
        for row in player_rows:
            table.add_row(*map(escape, row))
        console.print(table)


def print_measures(facts: Facts, console: Console) -> None:
    """Print the measures other than right and wrong, if there are any."""
    names = names_of(facts)
    if not names:
        return
    arms = facts.results["arms"]
    table = new_table("measure", *arms, words=("measure",))
    for name in names:
        measure_figures = [arm["measures"].get(name) for arm in arms.values()]
        table.add_row(
            name.replace("_", " "),
            *("–" if f is None else format_summary(f) for f in measure_figures),
        )
    console.print(table)
    for pair in facts.results["pairs"]:
        for name, measure_figures in pair_rows(pair):
            pair_name = f"{pair['a']} − {pair['b']}"
            line = f"{pair_name}: {name.replace('_', ' ')} {format_summary(measure_figures)}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_compat(facts: Facts) -> None:
    """Print Delegate's own bookkeeping alongside ours, with the reason for each difference."""
    from rich.console import Console

    table = new_table(
        *("arm", "figure", "Delegate's\nrule", "ours", "why they differ"),
        words=("arm", "figure", "why they differ"),
        title="Delegate's figures and ours",
    )
    for row in facts.results["delegate"]:
        table.add_row(
            row["arm"],
            row["figure"],
            compat_figure(row, "theirs"),
            compat_figure(row, "ours"),
            row["why"],
        )
    Console().print(table)

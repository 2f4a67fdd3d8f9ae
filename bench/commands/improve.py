"""`bench improve`: does the closed loop pay off?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.experiments.document import Document
    from loopline.bench.improve.figures import ImproveReport
    from loopline.bench.improve.options import ImproveOptions
    from loopline.bench.improve.worlds.figures import WorldsReport


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, improve, "bench.improve.options:ImproveOptions")


def improve(options: ImproveOptions) -> None:
    """Measure whether learning from escalations pays off.

    A stream of word problems, of kinds that the small model has never seen, goes through a cascade.
    Escalated questions train the small model; a version serves once it does better on audited
    questions and the router is calibrated for it. With --worlds the learner is a team of planner,
    caller and summarizer: its tasks need APIs that it has never seen, and the world's state judges
    it.

    The deployment's big model is an endpoint of a stated accuracy; faults are injected meanwhile,
    as `bench faults` does. Run it again to resume after a crash or Ctrl-C. Exit code 1 if a bar is
    missed.
    """
    import json
    import sys

    from rich.console import Console

    from loopline.bench.experiments.document import WIDTH, show, write
    from loopline.runtime.errors import EXIT_FAILED
    from loopline.trainers.core.interruption import exit_on_interrupt

    with exit_on_interrupt():
        page, report = _worlds(options) if options.worlds else _word_problems(options)
    write(page, report, options.output)
    width = None if sys.stdout.isatty() else WIDTH
    # With `--json`, stdout has only the line of JSON.
    show(page, options.output, Console(highlight=False, width=width, stderr=options.as_json))
    if options.as_json:
        line: dict[str, Any] = report.as_json()
        print(json.dumps(line))
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)


def _word_problems(options: ImproveOptions) -> tuple[Document, ImproveReport]:
    from loopline.bench.improve.figures import ImproveReport
    from loopline.bench.improve.report import document
    from loopline.bench.improve.stream import play

    report = ImproveReport(
        results=tuple(
            play(options.output / f"seed-{seed}", options.stream(seed), _say)
            for seed in options.seed_numbers
        )
    )
    return document(report), report


def _worlds(options: ImproveOptions) -> tuple[Document, WorldsReport]:
    from loopline.bench.improve.worlds.figures import WorldsReport
    from loopline.bench.improve.worlds.report import document
    from loopline.bench.improve.worlds.stream import play_stream

    report = WorldsReport(
        results=tuple(
            play_stream(options.output / f"seed-{seed}", options.worlds_stream(seed), _say)
            for seed in options.seed_numbers
        )
    )
    return document(report), report


def _say(text: str) -> None:
    typer.echo(text, err=True)

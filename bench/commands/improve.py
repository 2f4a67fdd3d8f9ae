"""`bench improve`: does the closed loop pay?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.improve.options import ImproveOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, improve, "bench.improve.options:ImproveOptions")


def improve(options: ImproveOptions) -> None:
    """Say whether a loop that learns from its escalations pays.

    A stream of word problems of kinds that the small model has never seen goes through a cascade.
    What it escalates trains the small model; a version serves once it is better on audited
    questions, and the router is calibrated on it.

    The deployment is the profile micro, with an endpoint of a stated accuracy as its big model;
    it is attacked meanwhile, as by `bench faults`. Run it again to go on after a crash or Ctrl-C. Exit code 1 if a
    bar is missed.
    """
    import json
    import sys

    from rich.console import Console

    from loopline.bench.experiments.document import WIDTH, show, write
    from loopline.bench.improve.figures import ImproveReport
    from loopline.bench.improve.report import document
    from loopline.bench.improve.stream import play
    from loopline.runtime.errors import EXIT_FAILED
    from loopline.trainers.core.interruption import exit_on_interrupt

    def say(text: str) -> None:
        typer.echo(text, err=True)

    with exit_on_interrupt():
        results = tuple(
            play(options.output / f"seed-{seed}", options.stream(seed), say)
            for seed in options.seed_numbers
        )
    report = ImproveReport(results=results)
    page = document(report)
    write(page, report, options.output)
    width = None if sys.stdout.isatty() else WIDTH
    # The line of JSON stands alone on stdout where it is asked for.
    show(page, options.output, Console(highlight=False, width=width, stderr=options.as_json))
    if options.as_json:
        print(json.dumps(report.as_json()))
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)

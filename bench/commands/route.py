"""`bench route`: does a router between two models pay off, and does it keep its bound?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.commands.options import RouteOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, route, "bench.commands.options:RouteOptions")


def route(options: RouteOptions) -> None:
    """Measure whether a router between two models pays off.

    Labelled answers of both models are split at random many times.

    In each split a router is trained and calibrated. The split's test part shows whether accepted
    wrong answers of the small model stay below --alpha. It also compares the router's cost with
    that of the big model alone, the small model alone, random mixing, a fixed ladder, thresholds on
    log-probability and entropy, and the oracle.
    """
    import json
    import sys

    from rich.console import Console

    from loopline.bench.experiments.document import WIDTH, show, write
    from loopline.bench.route.command import measure
    from loopline.bench.route.report import document

    report = measure(options)
    page = document(report)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        write(page, report, options.output)
    width = None if sys.stdout.isatty() else WIDTH
    # With `--json`, stdout has only the line of JSON.
    show(page, options.output, Console(highlight=False, width=width, stderr=options.as_json))
    if options.as_json:
        print(json.dumps(report.as_json()))

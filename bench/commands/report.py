"""`bench report`: write the reports of a directory again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.commands.options import ReportOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, report, "bench.commands.options:ReportOptions")


def report(options: ReportOptions) -> None:
    """Write the reports from what is stored. These are report.html, report.md and report.json; an
    unfinished benchmark gets a report of what it has. The line of JSON: whether it is complete, arm
    → questions that are not done, arm → figures."""
    from loopline.bench.output import OutputDirectory
    from loopline.bench.report.terminal import print_report
    from loopline.bench.report.writer import write_reports

    facts = write_reports(OutputDirectory(options.directory))
    if options.as_json:
        keys = ("complete", "not_done", "arms")
        print(json.dumps({key: facts.results[key] for key in keys}))
    else:
        print_report(facts, options.directory)

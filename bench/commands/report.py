"""`bench report`: write the reports of a directory anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.commands.run import Json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    directory: Annotated[Path, typer.Argument(help="What --output was.")],
    as_json: Json = False,
) -> None:
    """Write the reports from what is stored. These are report.html, report.md and report.json; an
    unfinished benchmark gets a report of what it has. The line of JSON: whether it is complete, arm
    → questions that are not done, arm → figures."""
    from loopline.bench.output import OutputDirectory
    from loopline.bench.report.terminal import print_report
    from loopline.bench.report.writer import write_reports

    facts = write_reports(OutputDirectory(directory))
    if as_json:
        keys = ("complete", "not_done", "arms")
        print(json.dumps({key: facts.results[key] for key in keys}))
    else:
        print_report(facts, directory)

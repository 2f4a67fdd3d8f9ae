"""`runtime export`: recorded runs for trainers and evaluation tools."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from loopline.runtime.commands.options import AsJson
from loopline.runtime.commands.store import Store, store_folder


class Format(StrEnum):
    """Format of the files."""

    TRL = "trl"
    HF = "hf"
    INSPECT = "inspect"
    VERIFIERS = "verifiers"


def register(app: typer.Typer) -> None:
    app.command("export")(export)


def export(
    output: Annotated[Path, typer.Argument(help="Folder to write; old files are replaced.")],
    form: Annotated[Format, typer.Option("--format", help="Format of the files.")],
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Export recorded runs for trainers and evaluation tools.

    trl: prompts with completions, and pairs by reward; hf: a data set; inspect: a log;
    verifiers: episodes and rollouts.
    """
    from loopline.runtime.interchange.exports import export
    from loopline.runtime.terminal.pluralize import format_count

    exported = export(store_folder(store), form, output, workflow)
    for skipped in exported.skipped:
        typer.echo(f"{skipped.where}: {skipped.reason} {skipped.detail}".rstrip(), err=True)
    if as_json:
        line = {
            "files": {str(path): rows for path, rows in exported.files.items()},
            "runs": exported.runs,
            "left_out": exported.left_out,
            "unreadable": len(exported.skipped),
        }
        typer.echo(json.dumps(line))
        return
    for path, rows in exported.files.items():
        typer.echo(f"{path}: {format_count(rows, 'row')}" if rows else str(path))
    if exported.left_out:
        typer.echo(f"{format_count(exported.left_out, 'run')} without an answer left out")

"""`bench tool-data`: reads published data of tool use, and says what could not be read."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.bench.commands.run import Data, Json

if TYPE_CHECKING:
    from pathlib import Path

    from loopline.bench.tools.published_files import Found

SOURCE = (
    "OpenBMB/ToolBench, ShishirPatil/gorilla (APIBench, BFCL) and tangqiaoyu/ToolAlpaca on "
    "https://github.com"
)
_SHOWN_UNKNOWN = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tool-data")(tool_data)


def tool_data(
    data: Data = None,
    first: Annotated[
        int, typer.Option(min=1, help="Places to name of each reason; --json names all.")
    ] = 3,
    as_json: Json = False,
) -> None:
    """Count the readable records of published tool-use data. Reads every file of ToolBench,
    APIBench, BFCL and ToolAlpaca below a folder: how many records each has, and how many were
    skipped, why and where."""
    from loopline.bench.datasets.location import data_root

    found = _read(data_root("Data of tool use", data, SOURCE))
    _show(found, first)
    if as_json:
        print(json.dumps(_figures(found)))


def _read(folder: Path) -> Found:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from loopline.bench.tools.published_files import read_all

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
        task = progress.add_task("reading")
        return read_all(folder, lambda done, of: progress.update(task, completed=done, total=of))


def _show(found: Found, first: int) -> None:
    from rich.markup import escape

    from loopline.runtime.terminal.pluralize import counted
    from loopline.runtime.terminal.safe_text import harmless
    from loopline.runtime.terminal.tables import figures, output_console
    from loopline.trainers.data.json_files import listed

    words = ("file", "reader", "skipped")
    table = figures("file", "reader", "files", "records", "skipped", words=words)
    for one in found.read:
        trouble = [listed(one.skipped, first)] if one.skipped else []
        if one.unusable:
            trouble.append(f"read, but of no use: {listed(one.unusable, first)}")
        table.add_row(
            escape(harmless(one.where)),
            one.reader,
            f"{one.files:,}",
            f"{one.records:,}",
            escape(harmless("; ".join(trouble))),
        )
    console = output_console(160)
    console.print(table)
    records = sum(one.records for one in found.read)
    skipped = sum(len(one.skipped) for one in found.read)
    files = sum(one.files for one in found.read)
    said = f"{counted(files, 'file')}: {counted(records, 'record')}, {skipped:,} skipped"
    if found.unknown:
        named = ", ".join(found.unknown[:_SHOWN_UNKNOWN])
        more = ", …" if found.unknown[_SHOWN_UNKNOWN:] else ""
        said += f"; {counted(len(found.unknown), 'file')} that no reader knows: {named}{more}"
    typer.echo(harmless(said))


def _figures(found: Found) -> dict[str, object]:
    return {
        "read": [asdict(one) for one in found.read],
        "records": sum(one.records for one in found.read),
        "skipped": sum(len(one.skipped) for one in found.read),
        "unknown": found.unknown,
    }

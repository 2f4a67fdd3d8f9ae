"""`bench tool-data`: reads published tool-use data and reports unreadable records."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from pathlib import Path

    from loopline.bench.commands.options import PublishedDataOptions
    from loopline.bench.tools.published_files import FolderContents

SOURCE = (
    "OpenBMB/ToolBench, ShishirPatil/gorilla (APIBench, BFCL) and tangqiaoyu/ToolAlpaca on "
    "https://github.com"
)
_SHOWN_UNKNOWN = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, tool_data, "bench.commands.options:PublishedDataOptions", name="tool-data")


def tool_data(options: PublishedDataOptions) -> None:
    """Count the readable records of published tool-use data. Reads every file of ToolBench,
    APIBench, BFCL and ToolAlpaca below a folder. Reports how many records each has, and how many
    were skipped, why and where."""
    from loopline.bench.datasets.location import data_root

    findings = _read(data_root("Data of tool use", options.data, SOURCE))
    _show(findings, options.first)
    if options.as_json:
        print(json.dumps(_figures(findings)))


def _read(folder: Path) -> FolderContents:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from loopline.bench.tools.published_files import read_all

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
        task = progress.add_task("reading")
        return read_all(folder, lambda count, of: progress.update(task, completed=count, total=of))


def _show(findings: FolderContents, first: int) -> None:
    from rich.markup import escape

    from loopline.runtime.terminal.pluralize import format_count
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import new_table, output_console
    from loopline.trainers.data.json_files import summarize_skipped

    words = ("file", "reader", "skipped")
    table = new_table("file", "reader", "files", "records", "skipped", words=words)
    for entry in findings.read:
        trouble = [summarize_skipped(entry.skipped, first)] if entry.skipped else []
        if entry.unusable:
            trouble.append(f"read, but unusable: {summarize_skipped(entry.unusable, first)}")
        table.add_row(
            escape(sanitize(entry.where)),
            entry.reader,
            f"{entry.files:,}",
            f"{entry.records:,}",
            escape(sanitize("; ".join(trouble))),
        )
    console = output_console(160)
    console.print(table)
    records = sum(entry.records for entry in findings.read)
    skipped = sum(len(entry.skipped) for entry in findings.read)
    files = sum(entry.files for entry in findings.read)
    summary = (
        f"{format_count(files, 'file')}: {format_count(records, 'record')}, {skipped:,} skipped"
    )
    if findings.unknown:
        named = ", ".join(findings.unknown[:_SHOWN_UNKNOWN])
        more = ", …" if findings.unknown[_SHOWN_UNKNOWN:] else ""
        summary += (
            f"; {format_count(len(findings.unknown), 'file')} of unknown format: {named}{more}"
        )
    typer.echo(sanitize(summary))


def _figures(findings: FolderContents) -> dict[str, object]:
    return {
        "read": [asdict(entry) for entry in findings.read],
        "records": sum(entry.records for entry in findings.read),
        "skipped": sum(len(entry.skipped) for entry in findings.read),
        "unknown": findings.unknown,
    }

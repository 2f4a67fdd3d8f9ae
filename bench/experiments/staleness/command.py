"""`bench staleness`: from the options to the table."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from loopline.bench.errors import BenchError, OutputError, UsageError
from loopline.bench.experiments.staleness.findings import Findings, findings_of, table_of
from loopline.bench.experiments.staleness.plan import (
    CORRECTIONS,
    SETTINGS,
    TITLES,
    Cell,
    Correction,
    StalenessSettings,
    cells_of,
    read_result,
)
from loopline.bench.output import new_folder
from loopline.runtime.errors import EXIT_INTERRUPTED
from loopline.runtime.terminal.pluralize import counted
from loopline.trainers.core.checkpoints import changed_settings, claimed_settings
from loopline.trainers.core.job_processes import Told, do_jobs
from loopline.trainers.core.json_records import write_record
from loopline.trainers.core.output_lock import locked
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.results import read_result as read_arm

WORKER = "loopline.bench.experiments.staleness.worker"
REPORT = "report.json"
LINE_SECONDS = 20.0
"""A line about each cell in work so often, at most."""


def measure(
    output: Path,
    settings: StalenessSettings,
    ages: tuple[int, ...],
    corrections: tuple[Correction, ...],
    *,
    jobs: int,
    as_json: bool,
) -> None:
    """Do what is not done, print the table. Raises `BenchError`; SystemExit after Ctrl-C."""
    claim(output, settings)
    cells = cells_of(settings, ages, corrections)
    try:
        with locked(output):
            done = do_cells(cells, output, jobs)
    except TrainingError as error:
        raise BenchError(str(error)) from error
    except KeyboardInterrupt:
        done = False
    if not done:
        print("stopped; go on with the same command", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED)
    findings = findings_of(settings, cells, output)
    write_record(output / REPORT, findings)
    show(findings, output)
    if as_json:
        typer.echo(json.dumps(findings.model_dump(mode="json", exclude={"settings"})))


def do_cells(cells: Sequence[Cell], output: Path, jobs: int) -> bool:
    """Do what is not done; False if it was stopped. Raises `TrainingError`."""

    def finished(cell: Cell) -> bool:
        if cell.age is None:
            return read_arm(cell.folder(output)) is not None
        return read_result(cell, output) is not None

    def ready(cell: Cell) -> bool:
        return cell.age is None or finished(Cell(seed=cell.seed))

    left = [cell for cell in cells if not finished(cell)]
    told = _Lines(len(cells), len(cells) - len(left))
    return asyncio.run(do_jobs(left, WORKER, output, jobs, told.tell, ready))


def claim(output: Path, settings: StalenessSettings) -> None:
    """Make the folder this bench's own: ages and corrections may be added later, what all cells
    follow from may not change. Raises `BenchError`."""
    path = output / SETTINGS
    if path.exists():
        try:
            found = claimed_settings(path, StalenessSettings)
        except TrainingError as error:
            raise OutputError(str(error)) from error
        seeds = {"demo": {"seeds"}}
        changed = changed_settings(
            found.model_dump(exclude=seeds), settings.model_dump(exclude=seeds)
        )
        if changed:
            raise UsageError(
                f"{output} was begun with other settings: {', '.join(changed)}; use the same "
                "ones, or name another folder"
            )
        return
    write_record(new_folder(output) / SETTINGS, settings)


class _Lines:
    """Lines about cells, on stderr."""

    def __init__(self, cells: int, done: int) -> None:
        self._cells, self._done = cells, done
        self._told: dict[Cell, float] = {}

    def tell(self, cell: Cell, told: Told) -> None:
        if told.event == "finished":
            self._done += 1
            print(f"{cell.name}: {told.said} ({self._done} of {self._cells})", file=sys.stderr)
        elif time.monotonic() - self._told.get(cell, float("-inf")) >= LINE_SECONDS:
            self._told[cell] = time.monotonic()
            share = f"{told.done / told.total:.0%}, " if told.total else ""
            print(f"{cell.name}, {told.event}: {share}{told.said}", file=sys.stderr)


def show(findings: Findings, output: Path) -> None:
    """The table, and what it is of."""
    Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(table_of(findings))
    settings, warm = findings.settings, findings.warm_start
    typer.echo(
        f"{settings.updates} updates, {settings.demo.reinforced.episodes} puzzles each, "
        f"{settings.demo.held_out:,} held-out puzzles of "
        f"{counted(len(settings.demo.seeds), 'seed')}; warm "
        f"start {warm[0]:.1%} ({100 * warm[1]:.1f}–{100 * warm[2]:.1f}); "
        f"{findings.tokens:,} tokens, {findings.cpu_minutes:.1f} CPU-minutes; {output / REPORT}"
    )
    for one in findings.cells:
        for why in dict.fromkeys(one.stopped):
            typer.echo(f"{one.age} versions ago, {TITLES[one.correction]}: stopped: {why}")


def parse_ages(text: str) -> tuple[int, ...]:
    """Comma-separated. Raises `UsageError`."""
    try:
        ages = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise UsageError(f"--ages {text}: whole numbers, as in 0,4,16") from error
    if ages[0] < 0:
        raise UsageError(f"--ages {text}: a sample of the future can't be learned from")
    return ages


def parse_corrections(text: str) -> tuple[Correction, ...]:
    """Comma-separated; `decoupled` is `token`. Raises `UsageError`."""
    wanted = {"token" if part == "decoupled" else part for part in text.split(",")}
    unknown = sorted(wanted - set(CORRECTIONS))
    if unknown:
        known = ", ".join("decoupled" if one == "token" else one for one in CORRECTIONS)
        raise UsageError(f"--corrections {unknown[0]}: there is no such; there are: {known}")
    return tuple(one for one in CORRECTIONS if one in wanted)

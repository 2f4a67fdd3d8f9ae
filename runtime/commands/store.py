"""`runtime store stats|compact|verify|sql`: the files of recorded runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from loopline.runtime.commands.options import AsJson

Store = Annotated[
    Path | None, typer.Option(help="Folder of recorded runs (default: this deployment's).")
]


def register(app: typer.Typer) -> None:
    store_app = typer.Typer(
        no_args_is_help=True, help="Recorded runs: sizes, compaction, verification, queries."
    )
    app.add_typer(store_app, name="store")
    store_app.command("stats")(stats)
    store_app.command("compact")(compact)
    store_app.command("verify")(verify)
    store_app.command("sql")(sql)


def stats(store: Store = None, as_json: AsJson = False) -> None:
    """Show the size of each table."""
    from datetime import UTC, datetime

    from loopline.runtime.terminal.tables import align_columns
    from loopline.workers.store.verification import summary

    result = summary(store_folder(store))
    if as_json:
        typer.echo(json.dumps(result))
        return

    def day(seconds: float | None) -> str:
        return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()

    rows = [
        (name, f"{of['files']:,}", f"{of['rows']:,}", f"{of['bytes'] / 1e6:,.1f}",
         day(of["first"]), day(of["last"]))
        for name, of in result["tables"].items()
    ]  # fmt: skip
    head = ("table", "files", "rows", "MB", "first", "last")
    typer.echo("\n".join(align_columns(head, rows, numbers=("files", "rows", "MB"))))
    if result["samples"]["files"]:
        megabytes = result["samples"]["bytes"] / 1e6
        typer.echo(f"\npacked for trainings, in samples/: {megabytes:,.1f} MB")
    if result["unreadable"]:
        typer.echo(f"\nset aside in {result['store']}/unreadable:")
        typer.echo("\n".join(f"    {name}" for name in result["unreadable"]))


def compact(store: Store = None, as_json: AsJson = False) -> None:
    """Merge small files into large ones, also while a recorder writes.

    Duplicate rows are removed; a damaged file is set aside and reported. Ctrl-C stops after the
    current step, and the next compaction continues from there.
    """
    from dataclasses import asdict

    from loopline.runtime.errors import EXIT_INTERRUPTED, InputError, UserError
    from loopline.runtime.terminal.pluralize import format_count
    from loopline.workers.store.compaction import AlreadyCompacting, compact
    from loopline.workers.store.files import TABLES

    folder = store_folder(store)
    results: dict[str, Any] = {}
    with _stoppable() as stop:
        for table in TABLES:
            if stop():
                break
            try:
                results[table] = asdict(
                    compact(
                        folder / table, everything=True, stop=stop, on_progress=_progress(table)
                    )
                )
            except AlreadyCompacting as error:
                raise InputError(str(error), hint="wait until it has ended.") from error
            except OSError as error:
                raise UserError(f"{error.filename or folder}: {error.strerror}") from error
        stopped = stop()
    if as_json:
        typer.echo(json.dumps({"store": str(folder), "complete": not stopped, **results}))
    else:
        for table, result in results.items():
            typer.echo(
                f"{table}: {format_count(result['files'], 'file')} into {result['into']}, "
                f"{format_count(result['rows'], 'row')}, "
                f"{format_count(result['duplicates'], 'duplicate')} left out"
            )
            for why in result["damaged"]:
                typer.echo(f"    set aside: {why}")
    if stopped:
        raise typer.Exit(EXIT_INTERRUPTED)


def verify(store: Store = None, as_json: AsJson = False) -> None:
    """Read every byte, and check each record against its hash.

    A damaged file goes to `unreadable/`, and its readable rows stay in the table. Exit code 1
    if anything was damaged or changed. After Ctrl-C, the next verification continues.
    """
    from dataclasses import asdict

    from loopline.runtime.errors import EXIT_FAILED, EXIT_INTERRUPTED, InputError, UserError
    from loopline.runtime.terminal.pluralize import format_count
    from loopline.workers.store.compaction import AlreadyCompacting
    from loopline.workers.store.verification import verify

    folder = store_folder(store)
    with _stoppable() as stop:
        try:
            result = verify(folder, stop=stop, on_progress=_progress("verify"))
        except AlreadyCompacting as error:
            raise InputError(str(error), hint="wait until it has ended.") from error
        except OSError as error:
            raise UserError(f"{error.filename or folder}: {error.strerror}") from error
    if as_json:
        typer.echo(json.dumps({"store": str(folder), "sound": result.sound, **asdict(result)}))
    else:
        typer.echo(f"{format_count(result.files, 'file')}, {format_count(result.rows, 'row')}")
        for why in result.damaged:
            typer.echo(f"set aside: {why}")
        for where in result.changed:
            typer.echo(f"changed since it was written: {where}")
    if not result.complete:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not result.sound:
        raise typer.Exit(EXIT_FAILED)


def sql(
    query: Annotated[str, typer.Argument(help="SQL statement for DuckDB.")],
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Query the store with DuckDB: trajectories, usage, rewards.

    Each row counts once, also while files are compacted or a run was recorded again.
    `trajectories` has the newest end of each run, `generations` has all ends.
    """
    from loopline.runtime.errors import InputError
    from loopline.runtime.observe.store_views import connect
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import align_columns

    connection = connect(store_folder(store))
    import duckdb

    try:
        cursor = connection.execute(query)
        head = tuple(column[0] for column in cursor.description or ())
        rows = cursor.fetchall()
    except duckdb.Error as error:
        raise InputError(str(error)) from error
    if as_json:
        values = [dict(zip(head, row, strict=True)) for row in rows]
        typer.echo(json.dumps(values, default=str))
        return
    texts = [tuple(sanitize("" if v is None else str(v))[:60] for v in row) for row in rows]
    typer.echo("\n".join(align_columns(head, texts)) if rows else "no rows")


def store_folder(store: Path | None) -> Path:
    """Return the given store, or this deployment's. Raises `InputError` if it does not exist."""
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.errors import InputError

    folder = StateDirectory.from_environment().store if store is None else store
    if not folder.is_dir():
        raise InputError(
            f"there is no store in {folder}",
            hint="a deployment's recorder creates it; --store names another folder.",
        )
    return folder


@contextmanager
def _stoppable() -> Generator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C or SIGTERM was received. A second signal ends the
    program immediately."""
    signals: list[int] = []

    def note(number: int, _frame: object) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _progress(name: str) -> Callable[[int, int], None]:
    """Show a line on stderr that counts files, if stderr is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)

    def show(done: int, total: int) -> None:
        if console.is_terminal and total:
            end = "\n" if done == total else "\r"
            console.print(f"{name}: {done:,} of {total:,} files", end=end, highlight=False)

    return show

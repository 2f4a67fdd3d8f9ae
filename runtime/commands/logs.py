"""`runtime logs`: log lines of the workers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)


def logs(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="Worker kind (planner, slm, gpu, …), supervisor or redis (default: all)."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Last lines to print of each log.")
    ] = 20,
) -> None:
    """Print the last log lines of the workers."""
    from loopline.runtime.observe.log_files import Follower, tail

    files = _files(kind)
    prefix = len(files) > 1
    followers = [(file, Follower(file)) for file in files]
    for file, follower in followers:
        if follow:
            follower.start_at_end()
        for line in tail(file, lines):
            _print(file, line, prefix)
    while follow:
        for file, follower in followers:
            for line in follower.lines():
                _print(file, line, prefix)
        time.sleep(0.1)


def _print(file: Path, line: str, prefix: bool) -> None:
    from loopline.runtime.terminal.safe_text import sanitize

    text = sanitize(line)
    typer.echo(f"{file.stem:<12} {text}" if prefix else text)


def _files(kind: str | None) -> list[Path]:
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.errors import InputError

    folder = StateDirectory.from_environment().logs
    every = sorted(folder.glob("*.log"))
    files = [
        f for f in every if kind is None or f.stem == kind or f.stem.rpartition("-")[0] == kind
    ]
    if not files:
        kinds = sorted({f.stem.rpartition("-")[0] or f.stem for f in every})
        raise InputError(
            f"no log of {kind!r} in {folder}" if kind else f"no logs in {folder}",
            hint=f"there are: {', '.join(kinds)}" if kinds else "`runtime up` writes them.",
        )
    return files

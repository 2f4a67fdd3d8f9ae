"""Reports records of a list that can't be read, without hiding the others."""

from __future__ import annotations

import sys
from collections.abc import Collection

import typer
from pydantic import ValidationError

from loopline.runtime.errors import EXIT_FAILED
from loopline.runtime.terminal.safe_text import sanitize

MAX_SHOWN = 200
"""Maximum characters of a name and of a reason in a message."""


def why_unreadable(what: str, error: Exception) -> str:
    """Describe a record that can't be read. `what` names it: `the job 0102-…`."""
    reason = str(error) or type(error).__name__
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        reason = f"{where}: {first['msg']}"
    return (
        f"{what[:MAX_SHOWN]} can't be read ({reason[:MAX_SHOWN]}): another program wrote it, or a"
        " newer one"
    )


def report_unreadable(reasons: Collection[str]) -> None:
    """Print why records can't be read, below the list of the others. Raises `typer.Exit` with code
    1 if there are any."""
    for why in reasons:
        print(f"error: {sanitize(why)}", file=sys.stderr)
    if reasons:
        raise typer.Exit(EXIT_FAILED)

"""`bench resume`: go on with a benchmark that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.commands.run import Json, RedisUrl


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("resume")(resume)


def resume(
    directory: Annotated[Path, typer.Argument(help="What --output was.")],
    concurrency: Annotated[
        int | None, typer.Option(help="Runs in flight at once, if not as before.")
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option("--budget-usd", help="The whole budget, what is spent included."),
    ] = None,
    as_json: Json = False,
    redis_url: RedisUrl = None,
) -> None:
    """Go on where a benchmark stopped, from its directory alone. Nothing that was answered is
    paid for again."""
    from loopline.bench import session

    ended = session.resume(
        directory, redis_url=redis_url, concurrency=concurrency, budget_dollars=budget_usd
    )
    session.show(ended, as_json=as_json)
    raise typer.Exit(ended.exit_code)

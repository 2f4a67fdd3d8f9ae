"""`bench resume`: go on with a benchmark that was interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.commands.options import ResumeOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, resume, "bench.commands.options:ResumeOptions")


def resume(options: ResumeOptions) -> None:
    """Go on where a benchmark stopped, from its directory alone. Nothing that was answered is
    paid for again."""
    from loopline.bench import session

    ended = session.resume(
        options.directory,
        profile=options.profile,
        redis_url=options.redis_url,
        concurrency=options.concurrency,
        budget=options.budget,
    )
    session.show(ended, as_json=options.as_json)
    raise typer.Exit(ended.exit_code)

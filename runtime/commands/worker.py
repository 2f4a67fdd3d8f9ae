"""`runtime worker KIND`: one worker in the foreground, joining a bus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runtime.commands.options import Profile, RedisUrl, Set


def register(app: typer.Typer) -> None:
    @app.command("worker")
    def worker(  # pyright: ignore[reportUnusedFunction]
        kind: Annotated[
            str, typer.Argument(help="planner, slm, gpu, tool, judge, recorder, jobs.")
        ],
        profile: Profile = None,
        redis_url: RedisUrl = None,
        overrides: Set = None,
        name: Annotated[str | None, typer.Option(hidden=True)] = None,
        resolved: Annotated[Path | None, typer.Option(hidden=True)] = None,
    ) -> None:
        """Run one worker here until Ctrl-C; it drains, a second Ctrl-C abandons its work.

        Without --redis-url, and when none is configured, it joins the deployment of this state
        directory with the configuration that one was started with; --set goes before it.
        """
        from runtime.config import resolved_file
        from runtime.deployment import find
        from runtime.state import StateDirectory
        from runtime.worker_process import run_worker

        if resolved is not None:
            settings = resolved_file(resolved)
        else:
            settings = find(
                redis_url=redis_url, profile=profile, overrides=tuple(overrides or ())
            ).settings
        run_worker(settings, kind, name, StateDirectory.from_environment())

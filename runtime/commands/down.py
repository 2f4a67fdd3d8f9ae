"""`runtime down`: drain the workers and stop."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("down")(down)


def down(
    now: Annotated[
        bool, typer.Option("--now", help="Abandon work in progress, do not finish it.")
    ] = False,
) -> None:
    """Let every worker finish the step it holds, then stop everything.

    Runs in flight stay on the bus: `runtime up` continues them.
    """
    from loopline.runtime.client.deployment import local_run_file
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.supervise.stopping import stop

    state = StateDirectory.from_environment()
    stop(local_run_file(state), state, now=now)
    typer.echo("down")

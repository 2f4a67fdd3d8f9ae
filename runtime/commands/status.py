"""`runtime status` and `runtime top`: the state of the deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import AsJson, OfRunning, RedisUrl

if TYPE_CHECKING:
    from loopline.runtime.client.deployment import Deployment
    from loopline.runtime.observe.status import Status


def register(app: typer.Typer) -> None:
    app.command("status")(status)
    app.command("top")(top)


def status(
    redis_url: RedisUrl = None,
    profile: OfRunning = None,
    as_json: AsJson = False,
    worker: Annotated[
        str | None,
        typer.Option(
            "--worker",
            metavar="KIND",
            help="Exit code 0 if a worker of this kind on this host is ready, else 1.",
        ),
    ] = None,
) -> None:
    """Show workers, lag, leases, runs in flight and versions.

    Exit code 3 if the bus or the supervisor does not answer, 1 if a kind of worker has no ready
    worker, so that work for it waits.
    """
    import asyncio

    from loopline.runtime.client.deployment import find
    from loopline.runtime.errors import EXIT_FAILED, EXIT_UNREACHABLE

    deployment_status = asyncio.run(collect_from_bus(find(redis_url=redis_url, profile=profile)))
    if worker is not None:
        _check_health(deployment_status, worker)
    elif as_json:
        typer.echo(deployment_status.model_dump_json())
    else:
        from loopline.runtime.observe.status_view import console, render_status

        console().print(render_status(deployment_status))
    if deployment_status.bus_error or deployment_status.supervisor_error:
        raise typer.Exit(EXIT_UNREACHABLE)
    if worker is None and (deployment_status.unserved or deployment_status.phase == "silent"):
        raise typer.Exit(EXIT_FAILED)


def top(
    redis_url: RedisUrl = None,
    profile: OfRunning = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 1.0,
) -> None:
    """Show the status live, until Ctrl-C."""
    import asyncio
    import contextlib

    from loopline.runtime.client.deployment import find

    deployment = find(redis_url=redis_url, profile=profile)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_show_live(deployment, every))


def _check_health(status: Status, kind: str) -> None:
    """Print one word for a container's health check, and set the exit code."""
    import socket

    from loopline.runtime.errors import EXIT_FAILED

    host = socket.gethostname()
    states = [w.state for w in status.workers if w.kind == kind and w.host == host]
    well = [state for state in states if state in ("ready", "draining")]
    typer.echo((well or states or ["absent"])[0])
    if not well:
        raise typer.Exit(EXIT_FAILED)


async def collect_from_bus(deployment: Deployment) -> Status:
    from loopline.bus import CLIENT_PATIENCE, OUTAGE, Bus, BusUnavailable
    from loopline.bus.remedies import remedy
    from loopline.runtime.observe.status import collect

    try:
        async with Bus(deployment.settings.bus, patience=CLIENT_PATIENCE) as bus:
            return await collect(deployment, bus)
    except (BusUnavailable, *OUTAGE) as error:
        if deployment.run is None:
            raise
        status = await collect(deployment, None)
        status.phase = "degraded" if status.phase == "ready" else status.phase
        message = str(error)
        status.bus_error = (
            message if isinstance(error, BusUnavailable) else f"{message}: {remedy(error)}"
        )
        return status


async def _show_live(deployment: Deployment, every: float) -> None:
    import asyncio

    from rich.live import Live

    from loopline.runtime.observe.status_view import console, render_status

    out = console()
    if not out.is_terminal:
        while True:
            out.print(render_status(await collect_from_bus(deployment)))
            await asyncio.sleep(every)
    with Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(render_status(await collect_from_bus(deployment)), refresh=True)
            await asyncio.sleep(every)

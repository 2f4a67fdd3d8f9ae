"""`runtime worker KIND`: one worker in the foreground, joining a bus."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import OfRunning, RedisUrl, Set

if TYPE_CHECKING:
    from loopline.runtime.config.state import RunFile


def register(app: typer.Typer) -> None:
    app.command("worker")(worker)


def worker(
    kind: Annotated[
        str,
        typer.Argument(
            help="Kind in the profile's [workers]: planner, slm, gpu, tool, judge, recorder, "
            "…; or jobs."
        ),
    ],
    profile: OfRunning = None,
    redis_url: RedisUrl = None,
    overrides: Set = None,
    name: Annotated[str | None, typer.Option(hidden=True)] = None,
    resolved: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one worker here until Ctrl-C. It drains; a second Ctrl-C abandons its work.

    Without a --redis-url or a configured one, the worker joins the deployment of this state
    directory with the configuration that the deployment was started with; --set overrides it.
    """
    from loopline.runtime.client.deployment import find
    from loopline.runtime.config.settings import DEFAULT_PROFILE, load_resolved_file
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.supervise.worker_process import run_worker

    state = StateDirectory.from_environment()
    if resolved is not None:
        settings = load_resolved_file(resolved)
        remedy, serves = _examine_running(state.running()), None
    else:
        all_overrides = tuple(overrides or ())
        deployment = find(redis_url=redis_url, profile=profile, overrides=all_overrides)
        settings, run, serves = deployment.settings, deployment.run, deployment.profile
        if run is not None and profile is None and not all_overrides:
            remedy = _examine_running(run)
        else:
            remedy = _examine(profile or (run.profile if run else DEFAULT_PROFILE), all_overrides)
    run_worker(settings, kind, name, state, remedy=remedy, profile=serves)


def _examine_running(run: RunFile | None) -> str:
    named = f" (profile {run.profile})" if run else ""
    return f"`runtime doctor` checks models and keys of this deployment{named}."


def _examine(profile: str, overrides: tuple[str, ...]) -> str:
    words = ["runtime", "doctor", "--profile", profile]
    words += [word for assignment in overrides for word in ("--set", assignment)]
    return f"`{shlex.join(words)}` checks models and keys."

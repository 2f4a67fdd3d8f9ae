"""`runtime up`: start everything of one profile on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import Profile, RedisUrl, Set, UnsafeExec

if TYPE_CHECKING:
    from loopline.runtime.config.settings import Settings


def register(app: typer.Typer) -> None:
    app.command("up")(up)


def up(
    profile: Profile = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once every worker is ready.")
    ] = False,
    app_file: Annotated[
        Path | None,
        typer.Option(
            "--app", metavar="FILE", help="A Python file with an App: its tools are served."
        ),
    ] = None,
    redis_url: RedisUrl = None,
    unsafe_exec: UnsafeExec = False,
    overrides: Set = None,
) -> None:
    """Start Redis and the workers; Ctrl-C drains, twice abandons work. No Redis is started if one
    is configured."""
    from loopline.runtime.config.settings import DEFAULT_PROFILE, load
    from loopline.runtime.config.sources import absolute_profile

    all_overrides = [*(overrides or ()), *(["sandbox.unsafe_exec=true"] if unsafe_exec else ())]
    if app_file is not None:
        all_overrides.append(f"app.path={Path(os.path.expanduser(app_file)).resolve()}")
    settings = load(profile, overrides=all_overrides, redis_url=redis_url)
    if settings.app is not None:
        from loopline.runtime.app.loading import load_app

        load_app(settings.app)  # a broken app fails here, not in each worker
    if detach:
        from loopline.runtime.supervise.detached import start_detached

        start_detached(profile, all_overrides, redis_url, settings)
        return
    _run_in_foreground(settings, absolute_profile(profile or DEFAULT_PROFILE))


def _run_in_foreground(settings: Settings, profile: str) -> None:
    import asyncio
    from functools import partial

    from loopline.runtime.config.secrets import secret_values
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.observe.logging import configure
    from loopline.runtime.supervise.presence import connect
    from loopline.runtime.supervise.supervisor import Supervisor

    configure(
        level=settings.logging.level,
        form="console" if sys.stderr.isatty() else settings.logging.format,
        secrets=secret_values(settings.bus.redis_url, settings.secret_variables),
    )
    state = StateDirectory.from_environment()
    joining = partial(connect, profile=profile, state=state)
    asyncio.run(Supervisor(settings, state, profile=profile, connect=joining).run())

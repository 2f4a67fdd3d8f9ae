"""One file per command; each offers `register(app)`."""

from __future__ import annotations

from collections.abc import Callable

import typer

from loopline.runtime.commands import (
    approvals,
    ask,
    budgets,
    config,
    dashboard,
    dead,
    doctor,
    down,
    effects,
    export,
    jobs,
    keys,
    logs,
    policies,
    redis,
    runs,
    scale,
    schedule,
    status,
    store,
    up,
    worker,
)

COMMANDS: tuple[Callable[[typer.Typer], None], ...] = (
    up.register,
    ask.register,
    down.register,
    status.register,
    scale.register,
    worker.register,
    logs.register,
    runs.register,
    store.register,
    export.register,
    dead.register,
    effects.register,
    approvals.register,
    schedule.register,
    policies.register,
    keys.register,
    budgets.register,
    dashboard.register,
    jobs.register,
    redis.register,
    doctor.register,
    config.register,
)

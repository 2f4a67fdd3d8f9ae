"""`runtime schedule add|ls|rm`: questions on a cron schedule."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import (
    AsJson,
    BudgetTokens,
    BudgetUsd,
    RedisUrl,
    budget_of,
)
from loopline.runtime.on_bus import run_with_client

if TYPE_CHECKING:
    from loopline.runtime.client.client import Client
    from loopline.runtime.client.deployment import Deployment
    from loopline.workers.schedules import Schedule

Name = Annotated[str, typer.Argument(help="The schedule's name.")]


class MissedTicks(StrEnum):
    """See `loopline.workers.schedules.Schedule.missed`."""

    ONCE = "once"
    SKIP = "skip"


def register(app: typer.Typer) -> None:
    schedule = typer.Typer(no_args_is_help=True, help="Scheduled runs: add, list, remove.")
    app.add_typer(schedule, name="schedule")
    schedule.command("add")(add)
    schedule.command("ls")(ls)
    schedule.command("rm")(rm)


def add(
    name: Name,
    question: Annotated[str, typer.Argument(help="The question of each tick.")],
    cron: Annotated[
        str, typer.Option(help="When: minute hour day month weekday, as in '0 7 * * *'.")
    ],
    workflow: Annotated[
        str | None,
        typer.Option("--workflow", "-w", help="Workflow (default: the profile's)."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Option of the workflow; may be repeated."),
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="Time zone of the times, as in Europe/Berlin.")
    ] = "UTC",
    missed: Annotated[
        MissedTicks,
        typer.Option(
            help="Ticks while no worker was running: `once` runs the last of them late, "
            "`skip` none."
        ),
    ] = MissedTicks.ONCE,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Deadline of each run.")
    ] = 600.0,
    budget_usd: BudgetUsd = None,
    budget_tokens: BudgetTokens = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a schedule of this name.")
    ] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Ask a question at every tick of a cron line. Each tick starts one run."""
    from loopline.agents.errors import AgentError
    from loopline.agents.workflows import workflows
    from loopline.bus import schedules
    from loopline.runtime.client.spending import require_prices
    from loopline.runtime.config.key_value_options import key_value_options
    from loopline.runtime.errors import InputError
    from loopline.workers.schedules import Schedule

    async def added(client: Client, where: Deployment) -> float:
        settings = where.settings
        if settings.app is not None:
            from loopline.runtime.app.loading import load_app

            load_app(settings.app)
        run = client.new_run(
            question,
            workflow=workflow or settings.workflow,
            options=key_value_options("--option", option or [], "max_calls=4"),
            budget=budget_of(seconds, budget_tokens, budget_usd),
        )
        require_prices(run, settings)
        try:
            run = await client.with_offered_tools(run)
            workflows.get(run.workflow).first(run)
            now = client.bus.clock.now()
            new = Schedule(cron=cron, timezone=timezone, missed=missed.value, added=now, run=run)
            tick = new.next_tick(now)
            body = new.model_dump_json().encode()
            if not await schedules.put(client.bus, name, body, tick, replace=replace):
                raise InputError(
                    f"a schedule {name!r} already exists",
                    hint="--replace replaces it.",
                )
        except (AgentError, ValueError) as error:
            raise InputError(str(error)) from error
        return tick

    tick = run_with_client(redis_url, added)
    if as_json:
        typer.echo(json.dumps({"name": name, "next": tick}))
        return
    typer.echo(f"schedule {name}: next at {_utc(tick)}")


def ls(redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """List the schedules with their next ticks.

    Exit code 1 if a schedule can't be read; its name is printed, and it never starts a run here.
    """
    from loopline.bus import schedules
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import align_columns
    from loopline.runtime.terminal.unreadable import report_unreadable, why_unreadable
    from loopline.workers.schedules import Schedule

    unreadable: list[str] = []

    async def listed(client: Client, _: Deployment) -> list[tuple[str, float, Schedule]]:
        readable: list[tuple[str, float, Schedule]] = []
        for stored in await schedules.ls(client.bus):
            try:
                schedule = Schedule.model_validate_json(stored.body)
                readable.append((stored.name, stored.tick, schedule))
            except ValueError as error:
                unreadable.append(why_unreadable(f"the schedule {stored.name}", error))
        return readable

    entries = run_with_client(redis_url, listed)
    if as_json:
        lines = [
            {"name": name, "next": tick, **item.model_dump(mode="json")}
            for name, tick, item in entries
        ]
        typer.echo(json.dumps(lines))
        report_unreadable(unreadable)
        return
    rows = [
        (
            name,
            item.cron,
            item.timezone,
            _utc(tick),
            item.missed,
            item.run.workflow,
            sanitize(" ".join(item.run.task.prompt.split()))[:60],
        )
        for name, tick, item in entries
    ]
    head = ("name", "cron", "zone", "next", "missed", "workflow", "question")
    typer.echo("\n".join(align_columns(head, rows)) if rows else "no schedules")
    report_unreadable(unreadable)


def rm(name: Name, redis_url: RedisUrl = None) -> None:
    """Remove a schedule. Its runs in progress continue."""
    from loopline.bus import schedules
    from loopline.runtime.errors import InputError

    async def removed(client: Client, _: Deployment) -> bool:
        return await schedules.remove(client.bus, name)

    if not run_with_client(redis_url, removed):
        raise InputError(f"there is no schedule {name!r}", hint="`runtime schedule ls` lists them.")
    typer.echo(f"removed {name}")


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")

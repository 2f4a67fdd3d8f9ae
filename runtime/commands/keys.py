"""`runtime keys create|ls|revoke`: callers of the gateway, their models and daily budgets."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import AsJson, RedisUrl
from loopline.runtime.observe.cost_words import format_dollars

if TYPE_CHECKING:
    from loopline.bus import Bus
    from loopline.runtime.gateway.api_keys import ApiKey, KeyUse

MICRO = 1_000_000


class DashboardAccess(StrEnum):
    """See `ApiKey.dashboard`."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


def register(app: typer.Typer) -> None:
    keys = typer.Typer(no_args_is_help=True, help="API keys of the gateway's callers.")
    app.add_typer(keys, name="keys")
    keys.command("create")(create)
    keys.command("ls")(ls)
    keys.command("revoke")(revoke)


def create(
    name: Annotated[str, typer.Argument(help="Name of the key's owner, for `runtime keys ls`.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model that the key may name, as in `slm`, `slm/*` or `workflow/*`. Repeat it "
            "for several; every model without it.",
            metavar="PATTERN",
        ),
    ] = None,
    dollars_per_day: Annotated[
        float | None, typer.Option(min=0.000001, max=1e9, help="US dollars it may spend a day.")
    ] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option(min=1, help="Tokens that it may use a day.")
    ] = None,
    seconds_per_day: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds that its runs may take a day.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="Its tenant: a tenant's keys share budgets.")] = "",
    dashboard: Annotated[
        DashboardAccess,
        typer.Option(
            help="Let it sign in to the dashboard, which shows everybody's runs: `read` "
            "to look, `write` to change things there as well."
        ),
    ] = DashboardAccess.NONE,
    approves: Annotated[
        bool,
        typer.Option("--approves", help="Let it approve and deny calls of everybody's runs."),
    ] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once: only its digest is stored. Days end at midnight UTC."""
    from pydantic import ValidationError

    from loopline.runtime.errors import InputError
    from loopline.runtime.gateway import api_keys
    from loopline.runtime.on_bus import query_bus

    key = api_keys.new_key()

    async def add(bus: Bus) -> ApiKey:
        record = api_keys.ApiKey(
            id=api_keys.digest(key)[:12],
            name=name,
            created=bus.clock.now(),
            models=tuple(model or ("*",)),
            dashboard=dashboard.value,
            approves=approves,
            tokens_per_day=tokens_per_day,
            seconds_per_day=seconds_per_day,
            tenant=tenant,
            micro_dollars_per_day=(
                None if dollars_per_day is None else max(1, round(dollars_per_day * MICRO))
            ),
        )
        await api_keys.add(bus, key, record)
        return record

    try:
        record = query_bus(redis_url, add)
    except ValidationError as error:
        [fault, *_] = error.errors(include_url=False, include_input=False)
        raise InputError(f"the key's {fault['loc'][0]}: {fault['msg']}") from error
    if as_json:
        typer.echo(json.dumps({"key": key, **record.model_dump()}))
        return
    typer.echo(key)
    typer.echo(
        f"id {record.id}: keep the key now, it is not shown again\n"
        f"webhooks are signed with {record.webhook_secret}",
        err=True,
    )


def ls(redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """List the keys with their limits and today's use.

    Exit code 1 if a key can't be read; its id is printed, and no gateway of this version accepts
    the key.
    """
    from loopline.runtime.gateway import api_keys
    from loopline.runtime.on_bus import query_bus
    from loopline.runtime.terminal.tables import align_columns
    from loopline.runtime.terminal.unreadable import report_unreadable

    uses, ids = query_bus(redis_url, api_keys.uses)
    unreadable = [f"the key {key_id} can't be read: a newer program wrote it" for key_id in ids]
    if as_json:
        typer.echo(json.dumps([_as_json(use) for use in uses]))
        report_unreadable(unreadable)
        return
    rows = [
        (
            use.key.id,
            use.key.name,
            "revoked" if use.key.revoked else "active",
            " ".join(use.key.models),
            _of_limit(f"{use.spent.tokens:,}", use.key.tokens_per_day),
            _of_limit(_dollars(use.spent.micro_dollars), _limit_dollars(use.key)),
            _rights(use.key),
        )
        for use in uses
    ]
    columns = ("id", "name", "state", "models", "tokens today", "dollars today", "more")
    typer.echo("\n".join(align_columns(columns, rows)) if rows else "no keys")
    report_unreadable(unreadable)


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Key, by its ID in `keys ls`.")],
    redis_url: RedisUrl = None,
) -> None:
    """Revoke a key. Its runs in progress continue."""
    from loopline.runtime.errors import InputError
    from loopline.runtime.gateway import api_keys
    from loopline.runtime.on_bus import query_bus

    async def end(bus: Bus) -> bool:
        return await api_keys.revoke(bus, key_id)

    if not query_bus(redis_url, end):
        raise InputError(f"there is no key {key_id!r}", hint="`runtime keys ls` lists them.")
    typer.echo(f"revoked {key_id}")


def _rights(key: ApiKey) -> str:
    """Describe a key's tenant, time limit and rights."""
    seconds = key.seconds_per_day
    parts = (
        f"tenant {key.tenant}" if key.tenant else "",
        "" if seconds is None else f"{seconds:g} s a day",
        "" if key.dashboard == "none" else f"dashboard {key.dashboard}",
        "approves" if key.approves else "",
    )
    return ", ".join(filter(None, parts))


def _as_json(use: KeyUse) -> dict[str, object]:
    spent = {"tokens_today": use.spent.tokens, "micro_dollars_today": use.spent.micro_dollars}
    return {**use.key.model_dump(exclude={"webhook_secret"}), **spent}


def _dollars(micro_dollars: int) -> str:
    return format_dollars(micro_dollars / MICRO)


def _limit_dollars(key: ApiKey) -> str | None:
    limit = key.micro_dollars_per_day
    return None if limit is None else _dollars(limit)


def _of_limit(spent: str, limit: int | str | None) -> str:
    if limit is None:
        return spent
    return f"{spent} of {limit:,}" if isinstance(limit, int) else f"{spent} of {limit}"

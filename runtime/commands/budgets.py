"""`runtime budgets ls|set`: limits of tenants, threads, tags and the whole deployment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import AsJson, RedisUrl

if TYPE_CHECKING:
    from loopline.bus import Bus
    from loopline.bus.budgets import BudgetState


def register(app: typer.Typer) -> None:
    budgets = typer.Typer(
        no_args_is_help=True, help="Limits of tenants, tags and the whole deployment."
    )
    app.add_typer(budgets, name="budgets")
    budgets.command("ls")(ls)
    budgets.command("set")(set_)


def ls(redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """List limits with their spent and reserved amounts.

    `runtime keys ls` shows the limits of keys.
    """
    from loopline.bus.budgets import limited_scopes
    from loopline.runtime.on_bus import query_bus
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import align_columns

    states = query_bus(redis_url, limited_scopes)
    if as_json:
        typer.echo(json.dumps([_as_json(state) for state in states]))
        return
    rows = [
        (sanitize(state.scope), *_amounts(kind, numbers))
        for state in states
        for kind, numbers in _by_kind(state)
        if numbers[0]
    ]
    columns = ("scope", "limit", "spent", "reserved")
    typer.echo("\n".join(align_columns(columns, rows)) if rows else "no limits")


def set_(
    scope: Annotated[
        str,
        typer.Argument(
            help="tenant:NAME, tag:NAME=VALUE or day, for each day (UTC); thread:NAME or "
            "budget:NAME, once for all."
        ),
    ],
    usd: Annotated[
        float | None, typer.Option(min=0.000001, max=1e9, help="US dollars that it may spend.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of prompts and completions.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds of runs, from admission to end.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove all its limits.")] = False,
    redis_url: RedisUrl = None,
) -> None:
    """Limit what all runs of a scope may spend together.

    The limits replace the previous ones and also apply to runs in flight. Amounts spent while there
    was no limit are not counted.
    """
    from loopline.bus.budgets import BadBudget, Limits, set_limits
    from loopline.runtime.errors import InputError
    from loopline.runtime.on_bus import query_bus

    if none == any(value is not None for value in (usd, tokens, seconds)):
        raise InputError("give a limit: --usd, --tokens or --seconds; or --none")
    limits = Limits(
        tokens or 0,
        0 if usd is None else max(1, round(usd * 1e6)),
        0 if seconds is None else max(1, round(seconds * 1000)),
    )

    async def limit(bus: Bus) -> None:
        await set_limits(bus, scope, limits)

    try:
        query_bus(redis_url, limit)
    except BadBudget as error:
        raise InputError(str(error)) from error
    typer.echo(f"{scope} has no limit" if none else f"{scope} is limited")


def _by_kind(state: BudgetState) -> list[tuple[str, tuple[int, int, int]]]:
    """Return the limit, the spent and the reserved amount of each kind."""
    numbers = zip(state.limits.values, state.spent.values, state.reserved.values, strict=True)
    return list(zip(("tokens", "micro", "ms"), numbers, strict=True))


def _amounts(kind: str, numbers: tuple[int, int, int]) -> list[str]:
    from loopline.bus.budgets import amount

    return [amount(kind, number) for number in numbers]


def _as_json(state: BudgetState) -> dict[str, object]:
    names = {"tokens": "tokens", "micro": "micro_dollars", "ms": "milliseconds"}
    return {
        "scope": state.scope,
        **{
            names[kind]: dict(zip(("limit", "spent", "reserved"), numbers, strict=True))
            for kind, numbers in _by_kind(state)
            if numbers[0]
        },
    }

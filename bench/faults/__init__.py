"""`bench faults`: attack a deployment at random, then prove from its history that nothing was lost
and nothing doubled."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("faults")(faults)


def faults(
    runs: Annotated[int, typer.Option(min=1, max=1_000_000, help="Runs to admit.")] = 2000,
    seed: Annotated[
        int | None, typer.Option(help="Of the plan of faults; a random one if not given.")
    ] = None,
    workers: Annotated[int, typer.Option(min=5, max=64, help="Worker processes.")] = 6,
    rate: Annotated[float, typer.Option(min=0.1, help="Runs admitted per second.")] = 20.0,
    appendfsync: Annotated[
        str,
        typer.Option(help="Of the append-only file: always, or everysec (a slow disk may lose)."),
    ] = "always",
    output: Annotated[
        Path | None, typer.Option(help="New folder for the evidence and the logs; kept.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Run `delegate` on the scripted engine while workers are killed, stopped past their leases
    and continued, and Redis is killed and restarted.

    Then a checker reads the whole history and every record, and proves that every run ended once,
    every step was committed once and in order by the owner of its lease, the ledger adds up, and
    nothing is left over. Exit code 1, and the history around it, for any violation.
    """
    from bench.faults.command import Plan, attack

    plan = Plan(
        runs=runs,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        workers=workers,
        rate=rate,
        appendfsync=appendfsync,
        output=output,
    )
    attack(plan, as_json=as_json)

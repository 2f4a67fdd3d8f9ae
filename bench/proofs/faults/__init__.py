"""`bench faults`: attack a deployment at random, then prove from its history that nothing was lost
and nothing doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "faults", faults, minutes="6 minutes")


def faults(
    runs: Annotated[int, typer.Option(min=1, max=1_000_000, help="Runs to admit.")] = 2000,
    seed: Annotated[int | None, typer.Option(help="Seed of the faults; random without it.")] = None,
    workers: Annotated[int, typer.Option(min=5, max=64, help="Worker processes.")] = 6,
    rate: Annotated[float, typer.Option(min=0.1, help="Runs admitted per second.")] = 20.0,
    appendfsync: Annotated[
        str,
        typer.Option(
            help="Syncing of the append-only file: always, or everysec (a slow disk may lose)."
        ),
    ] = "always",
    settings: Annotated[
        str,
        typer.Option(
            help="fast: short leases, so that much happens, and after them a twentieth of the runs "
            "with default settings; default: all of them with these."
        ),
    ] = "fast",
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Names with commas between; all, if not given: kill, stop (SIGSTOP), redis "
            "(restart), reset, half_close, tear, delay, partition, refuse (a proxy), link (a "
            "network namespace), memory (maxmemory), disk (full), clock (jumps), supervisor "
            "(of `runtime up`). link and disk need root."
        ),
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option(help="New folder for the evidence and the logs; kept.")
    ] = None,
) -> None:
    """Attack a deployment under load, and check its whole history. Runs `delegate` while its
    workers, its Redis, their connections, disk and clocks are attacked.

    Its big model is behind an endpoint that keeps books. Then a checker reads the whole history and
    every record, and proves that every run ended once and with the right answer, every step was
    committed once and in order by the owner of its lease, ledger and endpoint agree, whoever
    followed a stream read it without a gap or a repeat, no worker died by itself, and nothing is
    left over. A violation is shown with the history around it. What can't be done on this
    machine is named, with the reason.
    """

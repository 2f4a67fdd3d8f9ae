"""`bench bus`: what a message costs here, beside a raw loop and FastStream, on one Redis."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "bus", bus, minutes="6 minutes")


def bus(
    messages: Annotated[
        int, typer.Option(min=100, max=10_000_000, help="Messages of one throughput measurement.")
    ] = 20_000,
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Interleaved repeats; the medians are reported.")
    ] = 3,
    latency_seconds: Annotated[
        float, typer.Option(min=1.0, max=600.0, help="Length of one latency measurement.")
    ] = 5.0,
    persistence: Annotated[
        str,
        typer.Option(
            help="Append-only file of Redis: none, everysec, always; both: none, everysec."
        ),
    ] = "both",
    idle_entries: Annotated[
        int, typer.Option(min=1_000, max=10_000_000, help="Pending entries that are swept over.")
    ] = 1_000_000,
    only_peers: Annotated[
        bool, typer.Option("--only-peers", help="Leave out recovery, sweeper and idle worker.")
    ] = False,
) -> None:
    """Measure the bus beside its peers, on a Redis of its own.

    One producer and one consumer process, 256-byte JSON messages, handlers that do nothing; ours
    runs at its full guarantee: typed envelope and payload, lease, atomic commit with journal
    append and hand-off to a next stream.
    """

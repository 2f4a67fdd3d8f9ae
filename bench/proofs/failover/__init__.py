"""`bench failover`: kill -9 of a gpu worker with 16 streamed requests in flight."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "failover", failover, minutes="3 minutes")


def failover(
    model: Annotated[
        str,
        typer.Option(
            help="random-micro or random-100m (random weights: they do not end a text before its "
            "limit), or a model folder whose completions run to the token limit."
        ),
    ] = "random-micro",
    only: Annotated[
        str, typer.Option(metavar="both|llama_cpp|torch", help="Which of our engines.")
    ] = "both",
    lease: Annotated[float, typer.Option(min=0.5, max=60, help="Lease in seconds.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Kills per engine.")] = 5,
) -> None:
    """Kill a gpu worker amid 16 streams, and time the failover. Another worker must have answered
    all of them within the lease + 2 s.

    It fails, too, if an answer was billed twice, or if a follower saw a gap.
    """

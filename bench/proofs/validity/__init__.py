"""`bench validity`: how often tool calls and JSON answers are valid, constrained and not."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "validity", validity, minutes="5 minutes")


def validity(
    model: Annotated[
        str,
        typer.Option(help="micro:llm, micro:slm, or what a pool's `model` may be."),
    ] = "micro:llm",
    engine: Annotated[str, typer.Option(metavar="torch|llama_cpp", help="Which engine.")] = "torch",
    samples: Annotated[
        int, typer.Option(min=1, max=100_000, help="Word problems for each figure.")
    ] = 200,
    temperatures: Annotated[
        str, typer.Option(help="Temperatures, comma-separated.")
    ] = "0,0.7,1.0,1.5",
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a completion.")] = 256,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests in flight.")] = 16,
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of the model.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the problems and of the sampling.")] = 0,
) -> None:
    """Measure the validity of tool calls and of JSON answers. Constrained and not.

    Held-out word problems are asked with the planner's tools, and then for an answer as a JSON
    object: with the schema enforced, and in words alone. The same problems and seeds each time.
    """

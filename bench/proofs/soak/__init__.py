"""`bench soak`: thousands of requests to one engine in this process, cancelled, closed and out of
time at random while its adapters are swapped; then proof that nothing was lost, mixed or left."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "soak", soak, minutes="3 minutes")


def soak(
    engine: Annotated[
        str, typer.Option(metavar="llama_cpp|torch", help="Which engine.")
    ] = "llama_cpp",
    requests: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="Requests to send.")
    ] = 10_000,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the requests; random without it.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="micro:slm, micro:llm, or a folder of safetensors.")
    ] = "micro:slm",
    concurrency: Annotated[
        int, typer.Option(min=1, max=200, help="Requests in flight; the engine has half the rows.")
    ] = 16,
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of the engine.")] = 1,
) -> None:
    """Load an engine with requests that are cancelled and late. Close some, let the deadlines of
    some pass, and swap, unload and damage adapters meanwhile.

    Every request must end once, in a way that its plan allows, with the adapter's version that
    served when it was sent; counts must add up; answers must be those of a quiet engine; at rest
    nothing may be left, and memory must not have grown.
    """

"""`bench soak`: thousands of requests to one engine in this process, cancelled, closed and out of
time at random while its adapters are swapped; then proof that nothing was lost, mixed or left."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("soak")(soak)


def soak(
    engine: Annotated[
        str, typer.Option(metavar="llama_cpp|torch", help="Which engine.")
    ] = "llama_cpp",
    requests: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="Requests to send.")
    ] = 10_000,
    seed: Annotated[
        int | None, typer.Option(help="Of the plan of requests; a random one if not given.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="micro:slm, micro:llm, or a folder of safetensors.")
    ] = "micro:slm",
    concurrency: Annotated[
        int, typer.Option(min=1, max=200, help="Requests in flight; the engine has half the rows.")
    ] = 16,
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of the engine.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Load an engine with requests that are cancelled and late. Close some, let the deadlines of
    some pass, and swap, unload and damage adapters meanwhile.

    Every request must end once, in a way that its plan allows, with the adapter's version that
    served when it was sent; counts must add up; answers must be those of a quiet engine; at rest
    nothing may be left, and memory must not have grown. Exit code 1 for any violation.
    """
    from loopline.bench.proofs.soak.command import Plan, attack

    plan = Plan(
        engine=engine,
        requests=requests,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        model=model,
        concurrency=concurrency,
        threads=threads,
    )
    attack(plan, as_json=as_json)

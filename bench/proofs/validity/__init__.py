"""`bench validity`: how often tool calls and JSON answers are valid, constrained and not."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("validity")(validity)


def validity(
    model: Annotated[
        str,
        typer.Option(help="micro:llm, micro:slm, or what a pool's `model` may be."),
    ] = "micro:llm",
    engine: Annotated[str, typer.Option(metavar="torch|llama_cpp")] = "torch",
    samples: Annotated[
        int, typer.Option(min=1, max=100_000, help="Word problems for each figure.")
    ] = 200,
    temperatures: Annotated[str, typer.Option(help="Comma-separated.")] = "0,0.7,1.0,1.5",
    max_tokens: Annotated[int, typer.Option(min=1, help="Of one completion.")] = 256,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests in flight.")] = 16,
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of the model.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the problems and of the sampling.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Measure the validity of tool calls and of JSON answers. Constrained and not.

    Held-out word problems are asked with the planner's tools, and then for an answer as a JSON
    object: with the schema enforced, and in words alone. The same problems and seeds each time.
    """
    from loopline.bench.proofs.validity.command import Plan, measure

    measure(
        Plan(
            model=model,
            engine=engine,
            samples=samples,
            temperatures=temperatures,
            max_tokens=max_tokens,
            concurrency=concurrency,
            threads=threads,
            seed=seed,
        ),
        as_json=as_json,
    )

"""`bench glpft`: the claim of α-UMi's paper, at small scale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("glpft")(glpft)


def glpft(
    output: Annotated[Path, typer.Argument(help="Folder of models, results and the report.")],
    sizes: Annotated[
        str, typer.Option(help="Model sizes, comma-separated: micro-0.2m, micro-0.8m, micro-2m.")
    ] = "micro-0.2m,micro-0.8m",
    seeds: Annotated[
        str, typer.Option(help="Seeds of weights and order, comma-separated.")
    ] = "1,2,3",
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, comma-separated: single, multitask, one-stage, glpft, no-reuse."
        ),
    ] = "single,multitask,one-stage,glpft",
    tokens: Annotated[
        str,
        typer.Option(help="Compute per cell in tokens, including padding; or one value per size."),
    ] = "6000000",
    instructions: Annotated[int, typer.Option(min=1, help="Instructions to train on.")] = 10_000,
    samples: Annotated[
        int,
        typer.Option(help="Held-out instructions with unseen worlds, wordings or combinations."),
    ] = 1_000,
    unseen_apis: Annotated[
        int,
        typer.Option(min=0, help="Held-out instructions with unseen APIs, reported separately."),
    ] = 250,
    jobs: Annotated[
        int, typer.Option(min=1, max=256, help="Cells to run at once, on one core each.")
    ] = 2,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON at the end.")
    ] = False,
) -> None:
    """Measure GLPFT and its baselines at equal compute. Parameter counts are equal, too.

    Each method is trained from random weights at each size with each seed, then plays held-out
    instructions of the API simulator. Run it again to resume after a crash or Ctrl-C, or to add
    sizes, seeds and methods; finished work is not repeated.
    """
    from pydantic import ValidationError

    from loopline.bench.errors import UsageError
    from loopline.bench.experiments.glpft.command import measure
    from loopline.bench.experiments.glpft.grid import Common, grid_of

    try:
        common = Common(
            instructions=instructions,
            data_seed=1,
            samples=samples,
            unseen_apis=unseen_apis,
            question_seed=123,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"--{option} {first['input']}: {first['msg']}") from error
    grid = grid_of(
        output, sizes=sizes, seeds=seeds, methods=methods, tokens=tokens, common=common, jobs=jobs
    )
    measure(grid, as_json=as_json)

"""`bench engine`: the engines in this process beside what else serves the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("engine")(engine)


def engine(
    model: Annotated[
        str,
        typer.Option(
            help="random-100m (a Qwen2 of that size with random weights), micro:llm, micro:slm, "
            "or a folder of safetensors."
        ),
    ] = "random-100m",
    precision: Annotated[
        str, typer.Option(metavar="f32|f16|bf16|q8_0|q4_k_m", help="Of the GGUF made of it.")
    ] = "bf16",
    only: Annotated[
        str, typer.Option(metavar="both|llama_cpp|torch", help="Which of our engines.")
    ] = "both",
    concurrency: Annotated[
        str, typer.Option(help="Requests in flight, comma-separated.")
    ] = "1,4,16,64",
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Interleaved repeats; the medians are reported.")
    ] = 3,
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of each engine.")] = 2,
    batched_bench: Annotated[
        Path | None, typer.Option(help="llama.cpp's own llama-batched-bench, to compare with.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the page with the plot goes.")] = Path(
        "results/engine.html"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Measure the engines' tokens/s and latency beside peers. All run on this machine.

    Peers: llama-cpp-python's packaged server, llama-batched-bench, transformers' `generate` on a
    static batch, and its continuous batching. All requests begin with one role prompt of about
    300 tokens.
    """
    from loopline.bench.proofs.engine.command import Plan, measure

    measure(
        Plan(
            model=model,
            precision=precision,
            only=only,
            concurrency=concurrency,
            repeats=repeats,
            threads=threads,
            batched_bench=batched_bench,
            output=output,
        ),
        as_json=as_json,
    )

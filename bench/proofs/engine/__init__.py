"""`bench engine`: the engines in this process beside what else serves the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "engine", engine, minutes="5 minutes", full="an hour")


def engine(
    model: Annotated[
        str,
        typer.Option(
            help="micro:llm, micro:slm, random-100m (a Qwen2 of that size with random weights), or "
            "a folder of safetensors."
        ),
    ] = "micro:llm",
    precision: Annotated[
        str,
        typer.Option(
            metavar="f32|f16|bf16|q8_0|q4_k_m",
            help="Precision of the GGUF file.",
        ),
    ] = "bf16",
    only: Annotated[
        str, typer.Option(metavar="both|llama_cpp|torch", help="Which of our engines.")
    ] = "both",
    concurrency: Annotated[str, typer.Option(help="Requests in flight, comma-separated.")] = "16",
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Interleaved repeats; the medians are reported.")
    ] = 3,
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of each engine.")] = 2,
    batched_bench: Annotated[
        Path | None, typer.Option(help="llama.cpp's own llama-batched-bench, to compare with.")
    ] = None,
) -> None:
    """Measure the engines' tokens/s and latency beside peers. All run on this machine.

    Peers: llama-cpp-python's packaged server, llama-batched-bench, transformers' `generate` on a
    static batch, and its continuous batching. All requests begin with one role prompt of about
    300 tokens.
    """

"""`bench fidelity`: whether the engines' log-probabilities are those that a trainer computes."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "fidelity", fidelity, minutes="5 minutes")


def fidelity(
    model: Annotated[
        str, typer.Option(help="micro:llm, micro:slm, or a folder of safetensors.")
    ] = "micro:llm",
    prompts: Annotated[int, typer.Option(min=1, max=100_000, help="Random prompts.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the prompts, the draws and the adapters.")] = 7,
    together: Annotated[
        int, typer.Option(min=2, max=256, help="Requests in flight where they are batched.")
    ] = 16,
    only: Annotated[
        str, typer.Option(metavar="both|llama_cpp|torch", help="Which of our engines.")
    ] = "both",
    dtype: Annotated[
        str,
        typer.Option(metavar="float32|float64", help="Floating-point type of torch."),
    ] = "float32",
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of each engine.")] = 2,
) -> None:
    """Compare the engines' log-probabilities with a plain pass. Token by token.

    torch: greedy and sampled at temperature 1; alone, batched, behind beginnings that were
    computed before, and with another adapter in each row. llama_cpp on the same weights as f32,
    q8_0 and q4_k_m: how often its likeliest token is the same, and how far log-probabilities lie
    apart. In float32 every sum rounds, in both alike; float64 shows what is left without that.
    """

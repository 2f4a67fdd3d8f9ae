"""`bench gpu`: whether a model of the size that users train goes through the whole loop on this
machine's GPU, how fast, and in how much memory."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(
        app, "gpu", gpu, minutes="a minute", full="takes the whole model, about 5 minutes on a GPU"
    )


def gpu(
    layers: Annotated[int, typer.Option(min=1, max=28, help="Layers; Qwen3-1.7B has 28.")] = 2,
    vocabulary: Annotated[
        int,
        typer.Option(min=2_048, max=151_936, help="Embedding rows; Qwen3-1.7B has 151,936."),
    ] = 2_048,
    groups: Annotated[int, typer.Option(min=1, help="Groups of each role in a step.")] = 2,
    candidates: Annotated[int, typer.Option(min=2, max=64, help="K: samples of a group.")] = 2,
    prompt: Annotated[int, typer.Option(min=1, help="Words of a prompt.")] = 24,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a completion.")] = 12,
    steps: Annotated[int, typer.Option(min=2, help="Training steps; the first is not timed.")] = 2,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the adapters.")] = 16,
    piece_tokens: Annotated[
        int, typer.Option(min=64, help="Tokens that go through the model at once: its memory.")
    ] = 4_096,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads, where there is no GPU.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of weights, prompts and rewards.")] = 1,
) -> None:
    """Take a model of 1.7B through serving, training and swapping. It has Qwen3-1.7B's
    configuration and random weights, in bfloat16: serve, sample, train an adapter for each of two
    roles by AT-GRPO, swap them in, serve. By default it is cut so that a CPU goes through it;
    --full takes the whole model, which needs a GPU.

    Prints tokens per second and peak memory of the engine and of the trainer. Fails unless the
    engine's log-probabilities are transformers' own, the trainer's are the engine's, each role is
    answered by its new adapter, and requests in flight end with the one that they began with.
    """

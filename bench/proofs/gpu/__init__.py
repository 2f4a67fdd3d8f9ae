"""`bench gpu`: whether a model of the size that users train goes through the whole loop on this
machine's GPU, how fast, and in how much memory."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gpu")(gpu)


def gpu(
    layers: Annotated[
        int, typer.Option(min=1, max=28, help="Of Qwen3-1.7B's 28; 2 for a CPU.")
    ] = 28,
    vocabulary: Annotated[
        int, typer.Option(min=2_048, max=151_936, help="Rows of its embedding; fewer for a CPU.")
    ] = 151_936,
    groups: Annotated[int, typer.Option(min=1, help="Of each role, in a step.")] = 8,
    candidates: Annotated[int, typer.Option(min=2, max=64, help="K: samples of a group.")] = 4,
    prompt: Annotated[int, typer.Option(min=1, help="Words of a prompt.")] = 256,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of a completion.")] = 256,
    steps: Annotated[int, typer.Option(min=2, help="The first one is not timed.")] = 3,
    rank: Annotated[int, typer.Option(min=1, help="Of adapters.")] = 16,
    piece_tokens: Annotated[
        int, typer.Option(min=64, help="Tokens that go through the model at once: its memory.")
    ] = 4_096,
    threads: Annotated[int, typer.Option(min=1, help="Of the CPU, where there is no GPU.")] = 1,
    seed: Annotated[int, typer.Option(help="Of weights, prompts and rewards.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Take a model of 1.7B through serving, training and swapping. It has Qwen3-1.7B's
    configuration and random weights, in bfloat16: serve, sample, train an adapter for each of two
    roles by AT-GRPO, swap them in, serve.

    Prints tokens per second and peak memory of the engine and of the trainer. Fails unless the
    engine's log-probabilities are transformers' own, the trainer's are the engine's, each role is
    answered by its new adapter, and requests in flight end with the one that they began with.
    """
    from loopline.bench.proofs.gpu.command import Plan, measure

    measure(
        Plan(
            layers=layers,
            vocabulary=vocabulary,
            groups=groups,
            candidates=candidates,
            prompt=prompt,
            max_tokens=max_tokens,
            steps=steps,
            rank=rank,
            piece_tokens=piece_tokens,
            threads=threads,
            seed=seed,
        ),
        as_json=as_json,
    )

"""`bench grpo-speed`: how fast AT-GRPO's two halves are. Rollouts through the bus beside the same
engine called in this process, and a trainer's step beside trl's on the same batch."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("grpo-speed")(grpo_speed)


def grpo_speed(
    model: Annotated[
        str, typer.Option(help="Micro name, hub id or folder, of rollouts and steps.")
    ] = "micro:llm",
    runs: Annotated[int, typer.Option(min=1, max=10_000, help="Puzzles of each repeat.")] = 16,
    candidates: Annotated[int, typer.Option(min=2, max=64, help="K, of rollouts and steps.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, max=4_096, help="Of a completion.")] = 32,
    groups: Annotated[int, typer.Option(min=1, max=10_000, help="Groups of a step.")] = 4,
    prompt: Annotated[int, typer.Option(min=2, help="Longest prompt of a step's groups.")] = 192,
    steps: Annotated[int, typer.Option(min=1, help="Measured ones of each repeat.")] = 2,
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Interleaved repeats; the medians are reported.")
    ] = 5,
    only: Annotated[
        str, typer.Option(metavar="both|rollouts|steps", help="Which half is measured.")
    ] = "both",
    trl: Annotated[bool, typer.Option(help="Measure trl's GRPOTrainer too.")] = True,
    seed: Annotated[int, typer.Option(help="Of puzzles, samples and batches.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Measure rollouts and training steps beside peers. Rollouts through the bus beside the same
    engine in-process, a step beside trl's.

    Rollouts: sampled tokens per second of a gpu worker, a worker per role, a recorder and Redis,
    each a process, against one process without a bus; Plan-Path puzzles, the same seeds, the engine
    on one thread. Steps: tokens per second of one update by the same groups, in fp32 on one thread,
    with prefixes shared (as trainings do) and without; each trainer after two steps that are not
    measured. The defaults take nine minutes on two cores.
    """
    from loopline.bench.proofs.grpo_speed.command import Plan, measure
    from loopline.runtime.errors import EXIT_INTERRUPTED

    plan = Plan(
        model=model,
        runs=runs,
        candidates=candidates,
        max_tokens=max_tokens,
        groups=groups,
        prompt=prompt,
        steps=steps,
        repeats=repeats,
        only=only,
        trl=trl,
        seed=seed,
    )
    try:
        measure(plan, as_json=as_json)
    except KeyboardInterrupt:
        # Here, because typer turns it into a silent exit.
        typer.echo("stopped; nothing is kept, the same command begins anew", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None

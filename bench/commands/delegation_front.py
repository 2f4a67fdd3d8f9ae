"""`bench delegation-front`: does a planner rewarded with right − λ · dollars learn when to hand
over?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("delegation-front")(delegation_front)


def delegation_front(
    output: Annotated[Path, typer.Argument(help="Folder of answers, planners and the report.")],
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Trainings per λ.")] = 3,
    lambdas: Annotated[
        str, typer.Option(help="Values of λ, comma-separated: the reward lost per dollar.")
    ] = "0,100,300,1000",
    held_out: Annotated[int, typer.Option(min=10, help="Questions to measure on.")] = 300,
    train_questions: Annotated[
        int, typer.Option(min=60, help="Training questions per seed.")
    ] = 300,
    rounds: Annotated[int, typer.Option(min=1, help="Updates per training.")] = 50,
    questions: Annotated[int, typer.Option(min=1, help="Questions per round.")] = 24,
    group_size: Annotated[int, typer.Option(min=2, help="Decisions sampled per question.")] = 8,
    learning_rate: Annotated[float, typer.Option(min=1e-9, help="Learning rate.")] = 8e-4,
    big_prompt_usd: Annotated[
        float, typer.Option(min=0, help="Dollars per million tokens that the big model reads.")
    ] = 2.5,
    big_completion_usd: Annotated[
        float, typer.Option(min=0, help="Dollars per million tokens that the big model writes.")
    ] = 10.0,
    small_prompt_usd: Annotated[
        float, typer.Option(min=0, help="Dollars per million tokens that the small model reads.")
    ] = 0.15,
    small_completion_usd: Annotated[
        float, typer.Option(min=0, help="Dollars per million tokens that the small model writes.")
    ] = 0.6,
    jobs: Annotated[
        int, typer.Option(min=1, max=256, help="Cells to run at once, on one core each.")
    ] = 2,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON at the end.")
    ] = False,
) -> None:
    """Teach a planner when to hand over, at several λ.

    The planner, an adapter of the micro-LLM, answers a question itself, hands the whole question to
    the small model, or splits it up. It starts with a weak guess and learns by GRPO; its reward is
    right − λ · dollars. Each λ is compared with the planner before training and with cascades on
    the same held-out questions. Run it again to resume after a crash or Ctrl-C, or to add seeds and
    values of λ.
    """
    from loopline.bench.experiments.delegation_front.cells import FrontSettings
    from loopline.bench.experiments.delegation_front.command import measure, parse_weights

    settings = FrontSettings(
        seeds=tuple(range(1, seeds + 1)),
        dollar_weights=parse_weights(lambdas),
        held_out=held_out,
        train_questions=train_questions,
        rounds=rounds,
        questions=questions,
        group_size=group_size,
        learning_rate=learning_rate,
        big_prices=(big_prompt_usd, big_completion_usd),
        small_prices=(small_prompt_usd, small_completion_usd),
    )
    measure(output, settings, jobs=jobs, as_json=as_json)

"""`bench gsm8k`, `bench wordproblems`, and `bench run` for every other benchmark: run the arms over
the questions, and report."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

Arms = Annotated[
    str | None,
    typer.Option(
        help="llm, router, slm or names of workflows, comma-separated; without it the benchmark's "
        "own."
    ),
]
Seed = Annotated[int, typer.Option(help="Which questions are drawn, and every run's dice.")]
Concurrency = Annotated[int, typer.Option(help="Runs in flight at once.")]
Budget = Annotated[
    float | None,
    typer.Option("--budget-usd", help="Stop admitting runs before they would cost more."),
]
Calculator = Annotated[str, typer.Option(metavar="on|off", help="Offer the calculator.")]
Compat = Annotated[
    str | None,
    typer.Option(metavar="delegate", help="Show Delegate's own bookkeeping beside ours."),
]
Output = Annotated[
    Path | None, typer.Option(help="Directory of the results; a new one under results/ if absent.")
]
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]
Profile = Annotated[
    str | None, typer.Option(help="Refuse to run on a deployment of another profile.")
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        help="The bus to join; without it the deployment of this state directory.",
    ),
]
Seconds = Annotated[float, typer.Option("--run-seconds", help="Deadline of each run.")]
Samples = Annotated[int | None, typer.Option(help="How many questions; all without it.")]
SamplesOfAny = Annotated[
    int | None,
    typer.Option(help="How many questions; without it all, or the default of a generated set."),
]
SamplesOfGenerated = Annotated[int, typer.Option(help="How many questions.")]
Split = Annotated[str, typer.Option(help="A split that the data set knows.")]
SplitOfAny = Annotated[
    str | None,
    typer.Option(help="A split that the benchmark knows; without it the benchmark's default."),
]
Data = Annotated[
    Path | None, typer.Option(help="File or folder of the questions; else LOOPLINE_DATA.")
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK",
        help="Name of a benchmark, package.module:OBJECT, or a file of questions (my.jsonl).",
    ),
]
ScorerFile = Annotated[
    Path | None,
    typer.Option(
        help="Python file with score(item, answer), for a file of questions; without it answers "
        "are compared with the gold ones as texts."
    ),
]
Choices = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="An option of the benchmark's own: game=sudoku, …"
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("gsm8k")(
        _of(
            "gsm8k",
            "Grade-school questions (GSM8K) through the arms, paired. --samples 500 --seed 123 are "
            "the questions of Delegate's published comparison.",
            split=(Split, "test"),
            samples=(Samples, None),
        )
    )
    app.command("wordproblems")(
        _of(
            "wordproblems",
            "Generated word problems through the arms, paired. The split held_out mixes what "
            "training never saw.",
            without=("data",),
            samples=(SamplesOfGenerated, 60),
            split=(Split, "held_out"),
        )
    )
    app.command("run", help=f"{inspect.getdoc(run)}\n\n{ENDS}")(run)


ENDS = "Exit code 1 if every run of an arm ended in an error or at its deadline, 130 after Ctrl-C."


def _of(
    name: str, about: str, *, without: tuple[str, ...] = (), **options: tuple[Any, object]
) -> Callable[..., None]:
    """`run` with its benchmark chosen: the same options, `without` those that make no sense of it,
    some with a help and a default of their own."""

    def command(**given: Any) -> None:
        run(name, **given)

    asked = inspect.signature(run, eval_str=True)
    command.__signature__ = asked.replace(  # type: ignore[attr-defined]
        parameters=[
            option.replace(annotation=own[0], default=own[1])
            if (own := options.get(name)) is not None
            else option
            for name, option in asked.parameters.items()
            if name not in ("benchmark", "scorer", "option", *without)
        ]
    )
    command.__doc__ = f"{about}\n\n{ENDS}"
    return command


def run(
    benchmark: Target,
    arms: Arms = None,
    scorer: ScorerFile = None,
    samples: SamplesOfAny = None,
    seed: Seed = 123,
    split: SplitOfAny = None,
    data: Data = None,
    option: Choices = None,
    concurrency: Concurrency = 32,
    budget_usd: Budget = None,
    calculator: Calculator = "on",
    compat: Compat = None,
    output: Output = None,
    as_json: Json = False,
    profile: Profile = None,
    redis_url: RedisUrl = None,
    run_seconds: Seconds = 600.0,
) -> None:
    """Your own benchmark through the arms, paired. It is a file of questions (JSON lines with id,
    question, answer), an object package.module:OBJECT, or one that a package registers under the
    entry point group `loopline.benchmarks`."""
    from loopline.bench.datasets import Request
    from loopline.bench.errors import UsageError
    from loopline.bench.registry import find
    from loopline.bench.session import Asked, show, start
    from loopline.runtime.config.key_value_options import key_value_options

    if calculator not in {"on", "off"}:
        raise UsageError(f"--calculator is on or off; got {calculator!r}")
    if compat not in {None, "delegate"}:
        raise UsageError(f"--compat knows only delegate; got {compat!r}")
    found = find(benchmark, scorer)
    choices = key_value_options("--option", option or [])
    if choices and found.options is None:
        raise UsageError(f"--option: the benchmark {found.name} has no options of its own")
    asked = Asked(
        benchmark=found,
        arms=found.parse_arms(arms, choices),
        request=Request(
            split=split or found.default_split,
            samples=samples,
            seed=seed,
            data=data,
            choices=choices,
        ),
        concurrency=concurrency,
        budget_dollars=budget_usd,
        calculator=calculator == "on",
        compat=compat,
        output=output,
        profile=profile,
        redis_url=redis_url,
        run_seconds=run_seconds,
        options=found.workflow_options,
    )
    ended = start(asked)
    show(ended, as_json=as_json)
    raise typer.Exit(ended.exit_code)

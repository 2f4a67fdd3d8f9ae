"""`bench tools`: tool use, by suite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.commands.run import (
    ENDS,
    Budget,
    Concurrency,
    Json,
    Output,
    Profile,
    RedisUrl,
    Seconds,
    Seed,
)

SuiteName = Annotated[str, typer.Option(help="worlds, tool_steps, bfcl or apibench.")]
Samples = Annotated[
    int | None,
    typer.Option(
        help="How many questions; without it 200 of the simulator's, all of published data."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="File or folder of published data, which worlds has none of; else LOOPLINE_DATA."
    ),
]
Arms = Annotated[
    str | None,
    typer.Option(
        help="umi, single: either or both; worlds then tells the win rate of the first against the "
        "second. For bfcl and apibench policies of the deployment, each an arm: llm, umi/planner, "
        "…  Without it umi; of bfcl and apibench llm."
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="worlds, tool_steps: unseen_worlds, unseen_wordings, unseen_combinations, "
        "unseen_apis, train, or held_out for all unseen ones; tool_steps also toolbench, "
        "toolalpaca or toolalpaca_real. bfcl: a category, or live for those of users; apibench: a "
        "hub. Without it unseen_worlds; of bfcl and apibench all, of bfcl without the live ones."
    ),
]
Constrained = Annotated[
    bool | None,
    typer.Option(
        "--constrained/--free",
        help="worlds, tool_steps: hold the caller to the offered tools by a schema, or let it "
        "write freely; none: constrained.",
    ),
]
Style = Annotated[
    str | None,
    typer.Option(
        metavar="documents|signatures",
        help="worlds, tool_steps: how prompts tell the tools; none: as the deployment's profile "
        "says, else documents.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tools", help=f"{tools.__doc__}\n\n{ENDS}")(tools)


def tools(
    suite: SuiteName = "worlds",
    split: Split = None,
    arms: Arms = None,
    samples: Samples = None,
    seed: Seed = 123,
    constrained: Constrained = None,
    tool_style: Style = None,
    data: Data = None,
    concurrency: Concurrency = 32,
    budget_usd: Budget = None,
    output: Output = None,
    as_json: Json = False,
    profile: Profile = None,
    redis_url: RedisUrl = None,
    run_seconds: Seconds = 600.0,
) -> None:
    """Tool use through the arms, paired. Whole runs in simulated worlds, single steps with the
    reference's history (Plan ACC, Act EM, hallucination, argument F1, Rouge-L), BFCL, APIBench."""
    from loopline.agents.records import JsonObject
    from loopline.bench.datasets import Request
    from loopline.bench.errors import UsageError
    from loopline.bench.registry import find
    from loopline.bench.session import Asked, show, start
    from loopline.bench.tools import SUITES

    if suite not in SUITES:
        raise UsageError(f"--suite: there is no suite {suite!r}; there are: {', '.join(SUITES)}")
    if tool_style not in (None, "documents", "signatures"):
        raise UsageError(f"--tool-style is documents or signatures; got {tool_style!r}")
    benchmark = find(suite)
    options: JsonObject = {**(benchmark.workflow_options or {})}
    if "prompt" in options:
        held = None if constrained is None else "--constrained" if constrained else "--free"
        given = [name for name in (held, tool_style and "--tool-style") if name]
        if given:
            raise UsageError(
                f"{' and '.join(given)}: of no use for --suite {suite}, whose questions have a "
                "prompt of their own and are answered freely; leave it out"
            )
    else:
        options["constrained"] = constrained is not False
        if tool_style is not None:
            options["tool_style"] = tool_style
    ended = start(
        Asked(
            benchmark=benchmark,
            arms=benchmark.arms.parse(benchmark.default_arms if arms is None else arms),
            request=Request(
                split=split or benchmark.default_split, samples=samples, seed=seed, data=data
            ),
            concurrency=concurrency,
            budget_dollars=budget_usd,
            output=output,
            profile=profile,
            redis_url=redis_url,
            run_seconds=run_seconds,
            options=options,
        )
    )
    show(ended, as_json=as_json)
    raise typer.Exit(ended.exit_code)

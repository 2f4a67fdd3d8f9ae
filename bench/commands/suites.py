"""Benchmarks with a choice of suites, games or data sets: `bench tools` (tool use), `bench puzzles`
(held-out puzzles for a pair of agents), `bench code` and `bench math` (problems for a team of
two)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.bench.commands.run import add_benchmark, conduct

if TYPE_CHECKING:
    from loopline.bench.commands.options import (
        CodeOptions,
        MathOptions,
        PuzzleOptions,
        ToolOptions,
    )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_benchmark(app, tools, "ToolOptions")
    add_benchmark(app, puzzles, "PuzzleOptions")
    add_benchmark(app, code, "CodeOptions")
    add_benchmark(app, math, "MathOptions")


def tools(options: ToolOptions) -> None:
    """Tool use; every arm gets the same tasks. The suites are whole runs in simulated worlds,
    single steps with the reference's history (Plan ACC, Act EM, hallucination, argument F1,
    Rouge-L), BFCL, and APIBench."""
    from loopline.agents.records import JsonObject
    from loopline.bench.datasets import Request
    from loopline.bench.errors import UsageError
    from loopline.bench.registry import find

    benchmark = find(options.suite)
    workflow_options: JsonObject = {**(benchmark.workflow_options or {})}
    constrained, tool_style = options.constrained, options.tool_style
    if "prompt" in workflow_options:
        constraint_flag = (
            None if constrained is None else "--constrained" if constrained else "--free"
        )
        flags = [name for name in (constraint_flag, tool_style and "--tool-style") if name]
        if flags:
            raise UsageError(
                f"{' and '.join(flags)}: no effect with --suite {options.suite}, whose questions "
                "have their own prompt and take free answers; leave it out"
            )
    else:
        workflow_options["constrained"] = constrained is not False
        if tool_style is not None:
            workflow_options["tool_style"] = tool_style
    split = options.split or benchmark.default_split
    request = Request(split, options.samples, options.seed, options.data)
    bench_request = options.asked(benchmark, options.arms, request, options=workflow_options)
    conduct(bench_request, as_json=options.as_json)


def puzzles(options: PuzzleOptions) -> None:
    """Unseen puzzles, played by a team of agents or by one alone. Reports success by policy
    version, greedy or pass@k, alongside hand-written players."""
    from loopline.agents.environments.registry import DEFAULT
    from loopline.agents.records import JsonObject
    from loopline.bench.datasets import Request
    from loopline.bench.puzzles.choice import environment_of
    from loopline.bench.puzzles.instances import BENCHMARK

    workflow_options = options.workflow_options
    choices: JsonObject = {
        "game": options.game or DEFAULT,
        "size": options.size,
        "difficulty": options.difficulty,
        "setting": options.setting,
        "attempts": 1 if options.attempts is None else options.attempts,
    }
    published = environment_of(choices).published
    split = options.split or (published.name if options.data and published else "test")
    request = Request(split, options.samples, options.seed, options.data, choices)
    bench_request = options.asked(BENCHMARK, options.arms, request, options=workflow_options)
    conduct(bench_request, as_json=options.as_json)


def code(options: CodeOptions) -> None:
    """Programs by a coder and a unit tester, or the coder alone. Hidden tests judge the programs in
    a sandbox. Reports success by policy version, greedy or pass@k, and the classes of failures.
    MBPP is asked as published: all its assertions are shown, so it has no hidden tests."""
    _play("code", options)


def math(options: MathOptions) -> None:
    """Mathematics by a reasoner and a tool user, or one alone. Questions come from grade school and
    competitions. Reports success by policy version, greedy or pass@k, and the classes of
    failures."""
    _play("math", options)


def _play(name: str, options: CodeOptions | MathOptions) -> None:
    from loopline.bench.datasets import Request
    from loopline.bench.registry import find

    workflow_options = options.workflow_options
    request = Request(
        split=options.split,
        samples=options.samples,
        seed=options.seed,
        data=options.data,
        choices={
            "dataset": options.dataset,
            "setting": options.setting,
            "attempts": 1 if options.attempts is None else options.attempts,
            "unsafe_exec": options.unsafe_exec,
        },
    )
    bench_request = options.asked(find(name), options.arms, request, options=workflow_options)
    conduct(bench_request, as_json=options.as_json)

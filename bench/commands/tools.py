"""`bench tools`: tool use, by suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.bench.commands.run import add_benchmark, conduct

if TYPE_CHECKING:
    from loopline.bench.commands.options import ToolOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_benchmark(app, tools, "ToolOptions")


def tools(options: ToolOptions) -> None:
    """Tool use through the arms, paired. Whole runs in simulated worlds, single steps with the
    reference's history (Plan ACC, Act EM, hallucination, argument F1, Rouge-L), BFCL, APIBench."""
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
                f"{' and '.join(flags)}: of no use for --suite {options.suite}, whose questions "
                "have a prompt of their own and are answered freely; leave it out"
            )
    else:
        workflow_options["constrained"] = constrained is not False
        if tool_style is not None:
            workflow_options["tool_style"] = tool_style
    split = options.split or benchmark.default_split
    request = Request(split, options.samples, options.seed, options.data)
    bench_request = options.asked(benchmark, options.arms, request, options=workflow_options)
    conduct(bench_request, as_json=options.as_json)

"""`bench gsm8k`, `bench wordproblems`, and `bench run` for every other benchmark: run all arms on
the questions and report."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.benchmark import Benchmark
    from loopline.bench.commands.options import (
        BenchmarkOptions,
        Gsm8kOptions,
        QuestionOptions,
        RunOptions,
        WordProblemOptions,
    )
    from loopline.bench.datasets import Request
    from loopline.bench.session import BenchRequest

ENDS = "Exits with 1 if every run of an arm ended in an error or at its deadline, 130 after Ctrl-C."


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_benchmark(app, gsm8k, "Gsm8kOptions")
    add_benchmark(app, wordproblems, "WordProblemOptions")
    add_benchmark(app, run, "BenchmarkOptions")


def add_benchmark(app: typer.Typer, command: Callable[[Any], None], options: str) -> None:
    """Add a benchmark's command, with the shared end of its help; `options` names a model of
    `bench.commands.options`."""
    about = f"{inspect.getdoc(command)}\n\n{ENDS}"
    add_command(app, command, f"bench.commands.options:{options}", about=about, preview=preview)


def preview(options: RunOptions) -> list[str]:
    """Lines that `--dry-run` prints."""
    where = options.redis_url or "the deployment of this machine's state directory"
    output = options.output
    lines = [
        f"asks {where}, {options.concurrency:,} runs at once",
        f"writes to {output or 'a new folder under results/'}",
    ]
    if output is not None and (output / "manifest.json").exists():
        lines.append(f"{output} already holds a benchmark: continue it with bench resume {output}")
    return lines


def conduct(request: BenchRequest, *, as_json: bool) -> None:
    """Run a benchmark to its end, show the outcome and exit."""
    from loopline.bench.session import show, start

    ended = start(request)
    show(ended, as_json=as_json)
    raise typer.Exit(ended.exit_code)


def gsm8k(options: Gsm8kOptions) -> None:
    """Ask every arm the same grade-school questions (GSM8K). --samples 500 --seed 123 selects the
    questions of Delegate's published comparison."""
    from loopline.bench.datasets import Request
    from loopline.bench.registry import find

    request = Request(options.split, options.samples, options.seed, options.data)
    _answer(options, find("gsm8k"), request)


def wordproblems(options: WordProblemOptions) -> None:
    """Ask every arm the same generated word problems. The split held_out mixes kinds of problems
    that training never saw."""
    from loopline.bench.datasets import Request
    from loopline.bench.registry import find

    request = Request(options.split, options.samples, options.seed)
    _answer(options, find("wordproblems"), request)


def run(options: BenchmarkOptions) -> None:
    """Run your own benchmark: every arm gets the same questions. The benchmark is a file of
    questions (JSON lines or Parquet with id, question, answer; local or hf://OWNER/NAME/FILE), an
    object package.module:OBJECT, or a name that a package registers in the entry point group
    `loopline.benchmarks`."""
    from loopline.bench.datasets import Request
    from loopline.bench.errors import UsageError
    from loopline.bench.registry import find

    benchmark = find(options.benchmark, options.scorer)
    if options.options and benchmark.options is None:
        raise UsageError(f"--option: the benchmark {benchmark.name} has no options of its own")
    split = options.split or benchmark.default_split
    request = Request(split, options.samples, options.seed, options.data, options.options)
    _answer(options, benchmark, request)


def _answer(options: QuestionOptions, benchmark: Benchmark, request: Request) -> None:
    bench_request = options.asked(
        benchmark,
        options.arms,
        request,
        calculator=options.calculator == "on",
        prompt_set=options.prompts,
        compat=options.compat,
        options=benchmark.workflow_options,
    )
    conduct(bench_request, as_json=options.as_json)

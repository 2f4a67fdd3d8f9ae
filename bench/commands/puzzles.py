"""`bench puzzles`: how many held-out puzzles a pair of agents solves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.bench.commands.run import add_benchmark, conduct

if TYPE_CHECKING:
    from loopline.bench.commands.options import PuzzleOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_benchmark(app, puzzles, "PuzzleOptions")


def puzzles(options: PuzzleOptions) -> None:
    """Unseen puzzles, played by a team of agents or by one alone. Reports success by
    policy version, greedy or pass@k, alongside players by hand."""
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

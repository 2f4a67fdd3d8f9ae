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
    """Unseen puzzles, played by two agents or by one of them alone. A tool agent and a
    plan agent: success by policy version, greedy or pass@k, beside players by hand."""
    from loopline.bench.datasets import Request
    from loopline.bench.puzzles.instances import BENCHMARK

    workflow_options = options.workflow_options
    request = Request(
        split=options.split or ("test" if options.data is None else "boxoban"),
        samples=options.samples,
        seed=options.seed,
        data=options.data,
        choices={
            "game": options.game,
            "size": options.size,
            "difficulty": options.difficulty,
            "setting": options.setting,
            "attempts": 1 if options.attempts is None else options.attempts,
        },
    )
    asked = options.asked(BENCHMARK, options.arms, request, options=workflow_options)
    conduct(asked, as_json=options.as_json)

"""`bench code` and `bench math`: how many problems a team of two agents solves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.bench.commands.run import add_benchmark, conduct

if TYPE_CHECKING:
    from loopline.bench.commands.options import CodeOptions, MathOptions


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_benchmark(app, code, "CodeOptions")
    add_benchmark(app, math, "MathOptions")


def code(options: CodeOptions) -> None:
    """Programs by a coder and a unit tester, or the coder alone. Hidden tests in a sandbox judge
    them: success by policy version, greedy or pass@k, and what failures are made of. MBPP is asked
    as published, with all its assertions shown: there nothing is hidden."""
    _play("code", options)


def math(options: MathOptions) -> None:
    """Mathematics by a reasoner and a tool user, or one alone. Questions of grade school and of
    competitions: success by policy version, greedy or pass@k, and what failures are made of."""
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

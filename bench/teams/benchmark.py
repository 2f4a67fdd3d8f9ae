"""A benchmark of problems for a team of two, scored by a judge that knows hidden data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from loopline.bench.arms import team_arms
from loopline.bench.benchmark import Benchmark, by_signals
from loopline.bench.datasets import Dataset, Request
from loopline.bench.judgement import Judge
from loopline.bench.output import Manifest
from loopline.bench.teams.choice import TeamChoice
from loopline.bench.teams.problem_judge import class_of, require_sandbox


def team_benchmark(
    name: str,
    title: str,
    *,
    load: Callable[[Request], Dataset],
    judge: Callable[[Manifest, Path], AbstractContextManager[Judge]],
    checkers: Mapping[str, str],
    team: tuple[str, str],
    about: str,
    alone: dict[str, str],
) -> Benchmark:
    """Return a benchmark. `team`: its two members; `about`: the team's work; `alone`: member → its
    work when alone."""
    return Benchmark(
        name=name,
        title=title,
        load=load,
        judge=judge,
        checkers=checkers,
        class_of=by_signals(class_of),
        arms=team_arms(*team, name="team", about=about, alone=alone),
        default_arms="team",
        options=TeamChoice,
        workflow_options={},
        require=require_sandbox,
        needs_judge_worker=True,
        team=True,
    )

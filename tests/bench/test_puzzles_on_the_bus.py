"""`bench puzzles` as its user runs it: real workers on a real bus, kill -9, resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.bus import BusSettings
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.sandbox import SandboxSettings
from loopline.workers.settings import (
    GpuWorkerSettings,
    JudgeWorkerSettings,
    RoleWorkerSettings,
    WorkerBase,
)
from tests.bench.bench_process import deployable, killed_at, last_line
from tests.workers.processes import workers_running
from tests.workers.sandbox.conftest import needs_bubblewrap
from tests.workers.test_puzzle_programs import SEARCH

INSTANCES = 12


def team(bus: BusSettings) -> list[WorkerBase]:
    """Both agents in one process, on an engine that knows sums and no puzzle."""
    model = ModelSettings(
        engine="scripted", model="scripted-pair", base_until_published=("tool", "plan")
    )
    return [
        RoleWorkerSettings(bus=bus, name="roles", roles=("player",)),
        GpuWorkerSettings(bus=bus, name="gpu", models={"pair": model}),
    ]


@pytest.mark.slow
async def test_each_arm_plays_every_instance_once_even_if_the_bench_is_killed(
    tmp_path: Path,
) -> None:
    with deployable(tmp_path, "petting") as (bus, environment):
        output = tmp_path / "out"
        arguments = ("puzzles", "--game", "sudoku", "--size", "4", "--samples", str(INSTANCES))
        how = ("--arms", "pair,plan_agent_alone", "--concurrency", "2", "--output", str(output))
        async with workers_running(team(bus), tmp_path / "workers"):
            killed_at(3, output, environment, *arguments, *how)
            line = last_line(environment, "resume", str(output))
        assert line["complete"]
        for name, calls in (("pair", 8), ("plan_agent_alone", 4)):
            arm = line["arms"][name]
            assert (arm["n"], arm["right"]) == (INSTANCES, 0)
            assert arm["classes"] == {"unreadable": INSTANCES}
            assert arm["usage"]["calls"] == calls * INSTANCES
            [version] = line["puzzles"]["versions"][name]
            assert "plan_agent: pair v0 (scripted-pair)" in version["policies"]
            assert 0 < version["high"] < 0.3


def programmer(bus: BusSettings, problems: Path) -> list[WorkerBase]:
    """A tool agent that always writes one program, and the judge that runs it."""
    model = ModelSettings.model_validate(
        {
            "engine": "scripted",
            "model": "scripted-pair",
            "base_until_published": ("tool",),
            "scripted": {"answers": [{"where": ["Write a Python program"], "says": [SEARCH]}]},
        }
    )
    few = SandboxSettings(parallel=2, ready=2)
    return [
        RoleWorkerSettings(bus=bus, name="roles", roles=("player",)),
        GpuWorkerSettings(bus=bus, name="gpu", models={"pair": model}),
        JudgeWorkerSettings(bus=bus, name="judge", problems=problems, sandbox=few),
    ]


@needs_bubblewrap
async def test_a_tool_agent_that_writes_python_solves_every_instance_with_one_program(
    tmp_path: Path,
) -> None:
    # The profile sets 64 for the shipped model.
    longer = {"LOOPLINE_OPTIONS__PAIR__MAX_TOKENS": "1024"}
    with deployable(tmp_path, "petting", **longer) as (bus, environment):
        arguments = ("puzzles", "--game", "plan_path", "--size", "7", "--samples", "4")
        how = ("--setting", "python=true", "--arms", "tool_agent_alone", "--output")
        workers = programmer(bus, tmp_path / "problems")
        async with workers_running(workers, tmp_path / "workers"):
            line = last_line(environment, *arguments, *how, str(tmp_path / "out"))
        assert line["complete"]
        arm = line["arms"]["tool_agent_alone"]
        assert (arm["n"], arm["right"]) == (4, 4)
        assert arm["usage"]["calls"] == 4

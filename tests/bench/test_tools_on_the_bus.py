"""`bench tools` as its user runs it: real workers on a real bus, kill -9, resume."""

from __future__ import annotations

from pathlib import Path

from loopline.bus import BusSettings
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import (
    GpuWorkerSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerBase,
)
from tests.bench.bench_process import deployable, killed_at, last_line
from tests.workers.processes import workers_running

ROLES = ("umi_planner", "umi_caller", "umi_summarizer", "umi_single")
INSTANCES = 50


def team(bus: BusSettings) -> list[WorkerBase]:
    """The workers of the profile `umi_scripted`, the roles in one process."""
    worlds = {"split": "unseen_worlds", "samples": INSTANCES}
    model = ModelSettings.model_validate(
        {"engine": "scripted", "model": "scripted-umi", "scripted": {"worlds": [worlds]}}
    )
    return [
        RoleWorkerSettings(bus=bus, name="roles", roles=ROLES),
        GpuWorkerSettings(bus=bus, name="gpu", models={"umi": model}),
        ToolWorkerSettings(bus=bus, name="tool"),
    ]


async def test_the_oracle_solves_all_instances_on_the_bus_even_if_the_bench_is_killed(
    tmp_path: Path,
) -> None:
    with deployable(tmp_path, "umi_scripted") as (bus, environment):
        output = tmp_path / "out"
        arguments = ("tools", "--suite", "worlds", "--split", "unseen_worlds")
        how = ("--samples", str(INSTANCES), "--arms", "umi,single", "--output", str(output))
        async with workers_running(team(bus), tmp_path / "workers"):
            killed_at(10, output, environment, *arguments, *how)
            line = last_line(environment, "resume", str(output))
        assert line["complete"]
        for arm in ("umi", "single"):
            assert line["arms"][arm]["right"] == line["arms"][arm]["n"] == INSTANCES
            assert line["arms"][arm]["classes"] == {"right": INSTANCES}
        assert line["pairs"][0]["win_rate"]["estimate"] == 0.5
        assert (output / "report.html").stat().st_size > 20_000

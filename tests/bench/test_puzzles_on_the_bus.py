"""`bench puzzles` as its user runs it: real workers on a real bus, kill -9, resume."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from bus import BusSettings
from tests.bench.test_tools_on_the_bus import killed_at, last_line
from tests.redis_process import running, servers
from tests.workers.processes import workers_running
from workers.engines.settings import ModelSettings
from workers.settings import GpuWorkerSettings, RoleWorkerSettings, WorkerBase

INSTANCES = 12


def team(bus: BusSettings) -> list[WorkerBase]:
    """Both agents in one process, on an engine that knows sums and no puzzle."""
    model = ModelSettings(
        engine="scripted", model="scripted-pair", base_until_published=("tool", "plan")
    )
    return [
        RoleWorkerSettings(bus=bus, name="roles", roles=("tool_agent", "plan_agent")),
        GpuWorkerSettings(bus=bus, name="gpu", models={"pair": model}),
    ]


async def test_every_instance_is_played_once_by_each_arm_though_the_bench_is_killed(
    tmp_path: Path,
) -> None:
    binary = next(iter(servers().values()))
    with TemporaryDirectory(prefix="sw-") as folder, running(binary, Path(folder)) as server:
        environment = {
            **os.environ,
            "SWITCHYARD_BUS__REDIS_URL": server.url,
            "SWITCHYARD_STATE": str(tmp_path / "state"),
            "SWITCHYARD_PROFILE": "petting",
        }
        output = tmp_path / "out"
        asked = ("puzzles", "--game", "sudoku", "--size", "4", "--samples", str(INSTANCES))
        how = ("--arms", "pair,plan_agent_alone", "--concurrency", "2", "--output", str(output))
        async with workers_running(team(BusSettings(redis_url=server.url)), tmp_path / "workers"):
            killed_at(3, output, environment, *asked, *how)
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

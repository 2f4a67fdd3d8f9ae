"""`bench tools` as its user runs it: real workers on a real bus, kill -9, resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bus import BusSettings
from tests.redis_process import running, servers
from tests.workers.processes import workers_running
from workers.engines.settings import ModelSettings
from workers.settings import GpuWorkerSettings, RoleWorkerSettings, ToolWorkerSettings, WorkerBase

COMMAND = [sys.executable, "-c", "from bench.cli import main; main()"]
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


def killed_at(results: int, output: Path, environment: dict[str, str], *arguments: str) -> None:
    """Run the bench until so many results are on the disk, then kill -9."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    items = output / "items.jsonl"
    while process.poll() is None:
        if items.exists() and items.read_bytes().count(b'"result"') >= results:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.005)
    errors = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, errors


def last_line(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    """What `--json` ends with."""
    done = subprocess.run(
        [*COMMAND, *arguments, "--json"],
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


async def test_the_oracle_solves_all_instances_on_the_bus_though_the_bench_is_killed(
    tmp_path: Path,
) -> None:
    binary = next(iter(servers().values()))
    with TemporaryDirectory(prefix="sw-") as folder, running(binary, Path(folder)) as server:
        environment = {
            **os.environ,
            "SWITCHYARD_BUS__REDIS_URL": server.url,
            "SWITCHYARD_STATE": str(tmp_path / "state"),
            "SWITCHYARD_PROFILE": "umi_scripted",
        }
        output = tmp_path / "out"
        asked = ("tools", "--suite", "worlds", "--split", "unseen_worlds")
        how = ("--samples", str(INSTANCES), "--arms", "umi,single", "--output", str(output))
        workers = team(BusSettings(redis_url=server.url))
        async with workers_running(workers, tmp_path / "workers"):
            killed_at(10, output, environment, *asked, *how)
            line = last_line(environment, "resume", str(output))
        assert line["complete"]
        for arm in ("umi", "single"):
            assert line["arms"][arm]["right"] == line["arms"][arm]["n"] == INSTANCES
            assert line["arms"][arm]["classes"] == {"right": INSTANCES}
        assert line["pairs"][0]["win_rate"]["estimate"] == 0.5
        assert (output / "report.html").stat().st_size > 20_000

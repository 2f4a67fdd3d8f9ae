"""Searches for tests: real workers on a real bus, and models that obey their instructions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loopline.agents.environments.math_team import (
    MathInstance,
    MathProblem,
    MathQuestion,
    MathSetting,
)
from loopline.bus import BusSettings
from loopline.runtime.config.settings import load
from loopline.testing import installed_servers, running_redis
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.judging.problems import ProblemFolder
from loopline.workers.settings import (
    GpuWorkerSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerBase,
)
from tests.workers.processes import workers_running

COMMAND = (sys.executable, "-m", "loopline.trainers.cli", "prompts")
SEED = 5
ROLES = ("umi_planner", "umi_caller", "umi_summarizer", "completion")


def prompt_file(path: Path, text: str, *, name: str = "umi_planner", version: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\nversion: {version}\n---\n{text}\n")
    return path


def umi_team(bus: BusSettings, scripted: Mapping[str, object]) -> list[WorkerBase]:
    """The team of `umi`, whose planner gives up at the rate that `scripted` sets."""
    # A quarter of them is held out from a search.
    worlds = [{"split": "train", "seed": SEED, "samples": 200}]
    model = ModelSettings.model_validate(
        {
            "engine": "scripted",
            "model": "scripted-umi",
            "base_until_published": ["planner", "caller", "summarizer", "single"],
            "scripted": {"worlds": worlds, **scripted},
        }
    )
    return [
        RoleWorkerSettings(bus=bus, name="roles", roles=ROLES),
        GpuWorkerSettings(bus=bus, name="gpu", models={"umi": model}),
        ToolWorkerSettings(bus=bus, name="tool"),
    ]


def solo_team(
    bus: BusSettings, scripted: Mapping[str, object], **model: object
) -> list[WorkerBase]:
    """One model that answers sums."""
    model_settings = ModelSettings.model_validate(
        {"engine": "scripted", "model": "scripted-llm", "scripted": scripted, **model}
    )
    return [
        RoleWorkerSettings(bus=bus, name="roles", roles=("solo", "completion")),
        GpuWorkerSettings(bus=bus, name="gpu", models={"llm": model_settings}),
        ToolWorkerSettings(bus=bus, name="tool"),
    ]


@dataclass(frozen=True)
class Serving:
    """A deployment that can run a search."""

    bus: BusSettings
    environment: dict[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, errors = process.communicate(timeout=100)
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)

    def last_line(self, *arguments: str) -> dict[str, Any]:
        """The last line of `--json`."""
        process = self.run(*arguments, "--json")
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout.splitlines()[-1])


@asynccontextmanager
async def serving(
    team: Callable[[BusSettings], Sequence[WorkerBase]], profile: str, folder: Path
) -> AsyncGenerator[Serving]:
    """A separate Redis server with the workers of a team; commands learn about it from the
    profile."""
    binary = next(iter(installed_servers().values()))
    with (
        TemporaryDirectory(prefix="sw-") as place,
        running_redis(Path(place), binary=binary) as server,
    ):
        # As the profile sets them: all processes of a deployment must agree on them.
        bus = load(profile, redis_url=server.url, environ={}).bus
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("LOOPLINE_")},
            "LOOPLINE_BUS__REDIS_URL": server.url,
            "LOOPLINE_STATE": str(folder / "state"),
            "LOOPLINE_PROFILE": profile,
        }
        async with workers_running(team(bus), folder / "workers"):
            yield Serving(bus, environment)


def sums(path: Path, count: int) -> Path:
    """A file of questions that the scripted engine answers correctly."""
    rows = [
        {"question": f"What is {at + 3} * {2 * at + 5}?", "answer": (at + 3) * (2 * at + 5)}
        for at in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def judged_sums(path: Path, count: int, problems: Path) -> Path:
    """The same questions as tasks of one turn for reasoner and tool user; the judge of this folder
    knows the answers."""
    problem_folder, lines = ProblemFolder(problems), list[str]()
    for at in range(count):
        a, b = at + 3, 2 * at + 5
        question = MathQuestion(id=f"sums/{at}", statement=f"What is {a} * {b}?")
        key = problem_folder.add(MathProblem(question=question, answer=str(a * b)))
        setting = MathSetting(turns=1)
        task = MathInstance(question=question, judged_as=key, setting=setting).task
        lines.append(task.model_dump_json() + "\n")
    path.write_text("".join(lines))
    return path

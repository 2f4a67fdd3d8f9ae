"""Real worker processes for tests."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from loopline.agents.records import JsonObject
from loopline.bus import BusSettings
from loopline.testing import end_workers, start_worker, write_settings
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import (
    GpuWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerBase,
)
from tests.forked import Forked, preload_of


def scripted_models(**changes: object) -> dict[str, ModelSettings]:
    """Two scripted pools, `llm` and `slm`."""
    return {
        name: ModelSettings.model_validate(
            {"engine": "scripted", "model": f"scripted-{name}", **changes}
        )
        for name in ("llm", "slm")
    }


BOXED: JsonObject = {"prompts": "mathematics"}
"""Options of `delegate` and `solo` that accept an answer without further checks."""


def deployment(
    bus: BusSettings, store: Path, models: dict[str, ModelSettings] | None = None
) -> list[WorkerBase]:
    """Settings of the smallest set of workers that runs every workflow."""
    return [
        RoleWorkerSettings(bus=bus, name="planner", roles=("planner", "expert", "solo")),
        RoleWorkerSettings(bus=bus, name="slm", roles=("slm",)),
        GpuWorkerSettings(bus=bus, name="gpu", models=models or scripted_models()),
        ToolWorkerSettings(bus=bus, name="tool"),
        RecorderSettings(bus=bus, name="recorder", store=store, linger_seconds=0.1),
    ]


def spawn(settings: WorkerBase, folder: Path) -> Forked:
    """Start a worker; its output goes to a file in `folder`."""
    path, log = write_settings(settings, folder)
    module = "loopline.workers.__main__"
    preload = preload_of(module, [str(path)], folder)
    return Forked(module, preload, [str(path)], stdout=log, stderr=log)


def spawn_faulty(settings: WorkerBase, folder: Path, fault: str) -> subprocess.Popen[bytes]:
    """Start a worker with a fault from `tests.workers.faulty_worker`."""
    command = (sys.executable, "-m", "tests.workers.faulty_worker", fault)
    return start_worker(settings, folder, command)


@contextlib.asynccontextmanager
async def workers_running(
    all_settings: Sequence[WorkerBase], folder: Path
) -> AsyncGenerator[dict[str, Forked]]:
    """Worker processes by name; SIGKILL ends those that do not drain in ten seconds."""
    processes = {settings.name: spawn(settings, folder) for settings in all_settings}
    try:
        yield processes
    finally:
        end_workers(processes.values())

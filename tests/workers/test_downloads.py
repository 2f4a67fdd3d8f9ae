"""A hub model is downloaded before it is loaded, and the bus is told so meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from loopline.bus import Bus, live_workers
from loopline.bus.settings import BusSettings
from loopline.workers.engines.local import model_files
from loopline.workers.engines.local.model_files import MICRO_MODELS
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.process import Worker
from loopline.workers.settings import GpuWorkerSettings
from tests.bus.serving import until


async def test_a_worker_reports_its_download_until_the_model_is_there(
    settings: BusSettings, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = threading.Event()

    def fetch(model: str, **_: object) -> str:
        assert there.wait(60)
        return str(MICRO_MODELS / model.partition("/")[2])

    monkeypatch.setattr(model_files, "snapshot_download", fetch)
    model = ModelSettings(engine="torch", model="someone/slm")
    worker = Worker(GpuWorkerSettings(bus=settings, name="gpu-1", models={"slm": model}))
    running = asyncio.create_task(worker.run())

    async def state() -> str:
        return "".join(
            presence.state for presence in await live_workers(bus) if presence.name == "gpu-1"
        )

    async def is_downloading() -> bool:
        return await state() == "downloading"

    async def is_ready() -> bool:
        return await state() == "ready"

    try:
        await until(is_downloading, "the download is told")
        there.set()
        await until(is_ready, "the model is served")
    finally:
        there.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("name", ["micro:slm", str(MICRO_MODELS / "slm")])
def test_a_local_model_is_not_downloaded(name: str) -> None:
    assert not model_files.is_on_hub(ModelSettings(engine="torch", model=name))
    assert Path(model_files.fetch(ModelSettings(engine="torch", model=name))).is_dir()

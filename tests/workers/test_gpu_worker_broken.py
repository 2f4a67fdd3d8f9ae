"""A worker exits when its model's thread dies, so that a supervisor starts a new one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loopline.bus import Bus, Inbox
from loopline.testing import RedisProcess
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.messages import registry
from loopline.workers.process import Worker
from loopline.workers.settings import GpuWorkerSettings
from tests.bus.serving import until
from tests.conftest import quick_settings
from tests.workers.processes import spawn_faulty
from tests.workers.streaming import ask_streaming


async def test_a_worker_with_a_broken_engine_exits_and_the_next_answers_its_requests(
    any_server: RedisProcess, tiny_model: Path, tmp_path: Path
) -> None:
    settings = quick_settings(any_server.url, lease_seconds=5)
    models = {"slm": ModelSettings(engine="torch", model=str(tiny_model))}
    broken = GpuWorkerSettings(bus=settings, name="broken", models=models)
    process = spawn_faulty(broken, tmp_path, "breaks")
    try:
        async with Bus(settings, registry()) as bus, Inbox(bus) as inbox:
            requests = [await ask_streaming(bus, inbox, "slm", seed) for seed in range(4)]
            await until(lambda: process.poll() is not None, "end of the worker", 60)
            log = (tmp_path / "broken.log").read_text()
            whole = broken.model_copy(update={"name": "whole"})
            next_one = asyncio.create_task(Worker(whole).run())
            async with asyncio.timeout(60):
                answers = [await request.call(bus) for request in requests]
            next_one.cancel()
            await next_one
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    why = "the torch engine can't continue: RuntimeError: the device was lost"
    assert f"gpu worker: {why}" in log.splitlines()
    assert "engine broken, worker exits" in log
    assert [request.reader.text for request in requests] == [call.text for call in answers]

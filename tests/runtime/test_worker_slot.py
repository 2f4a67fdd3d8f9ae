"""One worker's place under a supervisor."""

from __future__ import annotations

import asyncio
from pathlib import Path

from runtime.config import SupervisorSettings
from runtime.worker_slot import Launch, WorkerSlot


async def test_a_worker_that_cannot_be_started_is_tried_again_and_then_given_up_visibly(
    tmp_path: Path,
) -> None:
    settings = SupervisorSettings.model_validate({"backoff_seconds": 0.01, "crash_loop_deaths": 3})
    nothing = (str(tmp_path / "no-such-program"),)
    slot = WorkerSlot("slm", 1, Launch(settings, tmp_path / "settings", tmp_path, nothing))
    running = asyncio.create_task(slot.run())
    async with asyncio.timeout(20):
        while slot.state != "broken":  # noqa: ASYNC110 - what we wait for is another process
            await asyncio.sleep(0.01)
    assert slot.restarts == 2
    assert "3 deaths" in slot.reason
    await slot.stop()
    await running

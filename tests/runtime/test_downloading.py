"""`up` waits for a worker's download of its model, however long it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from loopline.runtime.config.settings import load
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.supervise.supervisor import Supervisor
from loopline.runtime.supervise.worker_slot import Launch, WorkerSlot


async def never(_: object) -> Any:
    raise AssertionError("no bus is joined here")


async def test_a_download_may_take_longer_than_the_time_limit_for_getting_ready(
    tmp_path: Path,
) -> None:
    settings = load("scripted", overrides=["supervisor.ready_seconds=0.05"], environ={})
    state = StateDirectory(tmp_path)
    supervisor: Any = Supervisor(settings, state, profile="scripted", connect=never)
    slot = WorkerSlot("gpu", 1, Launch(settings.supervisor, lambda _: tmp_path / "set", tmp_path))
    supervisor._record_presence(slot, "downloading")
    assert slot.state == "downloading"
    forever = asyncio.get_running_loop().create_future()
    supervisor._running = {slot: forever}
    announcements: list[str] = []
    announcing = asyncio.create_task(supervisor._announce(lambda: announcements.append("up")))
    done, _ = await asyncio.wait({announcing}, timeout=0.5)
    assert not done, "ten times as long as workers have"
    supervisor._record_presence(slot, "ready")
    await asyncio.wait_for(announcing, 20)
    assert (slot.state, announcements) == ("ready", ["up"])

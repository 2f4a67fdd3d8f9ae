"""The meaning of signals to a worker: a drain may be requested often, and abandoning work takes a
deliberate signal."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from loopline.bus.keys import GROUP
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.messages import role_stream
from loopline.workers.settings import RoleWorkerSettings
from loopline.workers.stop_signals import send, stop_signals
from tests.bus.serving import pending, until
from tests.conftest import quick_settings
from tests.workers.processes import spawn

TERM, HUP, INT, QUIT = signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([TERM, TERM], ["drain"]),
        ([TERM, HUP, TERM], ["drain"]),
        ([HUP], ["drain"]),
        ([INT, TERM], ["drain"]),
        ([INT, INT], ["drain", "abandon"]),
        ([TERM, INT], ["drain", "abandon"]),
        ([QUIT], ["abandon"]),
        ([TERM, QUIT], ["drain", "abandon"]),
    ],
)
async def test_only_a_second_ctrl_c_or_sigquit_abandons(
    sent: list[signal.Signals], expected: list[str]
) -> None:
    heard: list[str] = []
    with stop_signals(lambda _: heard.append("drain"), lambda _: heard.append("abandon")):
        for number in sent:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)  # the loop calls its handlers
        await until(lambda: len(heard) >= len(expected), "heard")
    assert heard == expected


async def test_a_hangup_that_nohup_suppresses_stays_ignored() -> None:
    heard: list[str] = []
    before = signal.signal(HUP, signal.SIG_IGN)
    try:
        with stop_signals(lambda _: heard.append("drain"), lambda _: heard.append("abandon")):
            os.kill(os.getpid(), HUP)
            await asyncio.sleep(0.01)
        assert signal.getsignal(HUP) is signal.SIG_IGN
    finally:
        signal.signal(HUP, before)
    assert heard == []


async def test_a_worker_drains_despite_a_second_sigterm_and_returns_its_work_when_abandoned(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    """A service manager's SIGTERM arrives twice, once from its supervisor."""
    settings = quick_settings(any_server.url, lease_seconds=30.0)
    worker = spawn(RoleWorkerSettings(bus=settings, name="planner", roles=("planner",)), tmp_path)
    try:
        async with Client.connect(settings) as client:
            run = client.new_run("What is 17 * 23?")
            await client.submit(run)
            shard = client.bus.keys.shard_of(run.id)
            stream, begun = (key_of(role_stream("planner")) for key_of in (shard.work, shard.begun))

            async def in_hand() -> bool:
                return await pending(client.bus, role_stream("planner")) == 1

            async def excused() -> bool:
                return list(await client.bus.redis.hvals(begun)) == [b""]  # pyright: ignore

            await until(in_hand, "its step waits for a model that nobody serves", within=60)
            worker.send_signal(TERM)
            await until(excused, "it drains")
            worker.send_signal(TERM)
            worker.send_signal(HUP)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await until(lambda: worker.poll() is not None, "its end", within=1)
            worker.send_signal(QUIT)
            await until(lambda: worker.poll() is not None, "its end")
            [pending_entry] = await client.bus.redis.xpending_range(stream, GROUP, "-", "+", 1)
            assert pending_entry["time_since_delivered"] >= settings.lease_ms
        assert worker.poll() == 0
    finally:
        worker.kill()
        worker.wait()


async def test_a_process_that_exits_while_signalled_keeps_its_exit_code() -> None:
    """The process dies of the first of many signals."""
    codes = set[int]()
    for _ in range(20):
        process = await asyncio.create_subprocess_exec("sleep", "60")
        send(process, signal.SIGKILL, *[signal.SIGCONT] * 3_000)
        codes.add(await process.wait())
        send(process, signal.SIGTERM)
    assert codes == {-signal.SIGKILL}

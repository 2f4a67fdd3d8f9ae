"""The sender of webhooks, and runs that it can't read."""

from __future__ import annotations

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from loopline.agents.records import Run, Task
from loopline.bus import Admission, Bus, Outgoing
from loopline.runtime.config.sections import GatewaySettings
from loopline.runtime.gateway import api_keys
from loopline.runtime.gateway.api_keys import ApiKey
from loopline.runtime.gateway.webhooks import CLAIM_SECONDS, WebhookSender
from tests.bus.payloads import new_run_id, note
from tests.bus.serving import until

UNREADABLE = [
    pytest.param(b'{"version": 999, "id": "x"}', id="a later version's"),
    pytest.param(b"nonsense", id="no record"),
]


@pytest.mark.parametrize("proxy", ["ftp://proxy.example:1", "socks4://proxy.example:1"])
async def test_the_sender_lives_on_and_names_a_proxy_that_it_cannot_use(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    key = ApiKey(id="0123456789ab", created=0.0)
    await api_keys.add(bus, "sk-loopline-test", key)
    run = Run(
        id=new_run_id(), task=Task(prompt="6 * 7?"), workflow="solo", policies={"solo": "llm"},
        created=0.0, deadline=time.time() + 60, account=key.id, webhook="http://127.0.0.1:9/hook",
    )  # fmt: skip
    message = Outgoing("planner", note(run.id))
    record = run.model_dump_json().encode()
    await bus.admit(Admission(run.id, record, time.time() + 60, (message,), announce=True))
    await bus.cancel(run.id)
    with capture_logs() as lines:
        sender = asyncio.create_task(WebhookSender(bus, GatewaySettings()).run())

        def is_named() -> bool:
            assert not sender.done()
            return any(f"ALL_PROXY is {proxy}" in line.get("why", "") for line in lines)

        try:
            await until(is_named, "the log names the proxy")
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            await bus.redis.delete(bus.keys.api_keys)  # the only key without an end


@pytest.mark.parametrize("record", UNREADABLE)
async def test_the_sender_retries_an_unreadable_run_later(bus: Bus, record: bytes) -> None:
    run_id = new_run_id()
    message = Outgoing("planner", note(run_id))
    await bus.admit(Admission(run_id, record, time.time() + 60, (message,), announce=True))
    await bus.cancel(run_id)
    ends = bus.keys.shard_of(run_id).ends
    sender = asyncio.create_task(WebhookSender(bus, GatewaySettings()).run())

    async def is_put_off() -> bool:
        assert not sender.done()
        score = await bus.redis.zscore(ends, run_id)
        assert score is not None, "a gateway of the version that wrote it may send it"
        return 0 < score / 1000 - bus.clock.now() < CLAIM_SECONDS / 2

    try:
        await until(is_put_off, "it is tried again later")
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)

"""A process repeats a request and serves it itself: the text continues where it ended."""

from __future__ import annotations

import asyncio

import pytest

from loopline.bus import Bus, Consumer, Delivery, Inbox, RequestError, TokenWriter, error_reply
from tests.bus.payloads import admit, note
from tests.bus.test_local_delivery import running


async def test_a_request_asked_again_finds_the_text_that_its_first_try_published(bus: Bus) -> None:
    published: list[str] = []

    async def handler(delivery: Delivery) -> None:
        writer = TokenWriter(delivery, "slm")
        published.append((await writer.published()).text)
        if len(published) == 1:
            await writer.append("ab", [1, 2])
            await delivery.reply(error_reply("unavailable", "gone", retryable=True), store=False)
        else:
            await writer.append("c", [3])
            await delivery.reply(b'"abc"', store=True)

    consumer = Consumer(bus, ["infer"], handler, local=True)
    task = await running(consumer)
    run_id = await admit(bus)
    async with Inbox(bus) as inbox:
        with pytest.raises(RequestError):
            await inbox.request("infer", note(run_id, key="k"))
        asking = inbox.request("infer", note(run_id, key="k"))
        assert await asyncio.wait_for(asking, 10) == b'"abc"'
    consumer.drain()
    await task
    assert published == ["", "ab"]

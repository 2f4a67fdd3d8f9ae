"""A lease ends with its message: a keeper that misses it afterwards has not lost it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import redis

from loopline.bus import Bus, Delivery, Finish, StepCommit
from tests.bus.payloads import admit
from tests.bus.serving import ended, serving


async def _commit(delivery: Delivery) -> None:
    await delivery.commit(StepCommit(b"{}", finish=Finish("answered")))


async def _reply(delivery: Delivery) -> None:
    await delivery.reply(b"{}", store=False)


SETTLE: dict[str, Callable[[Delivery], Awaitable[None]]] = {
    "commit": _commit,
    "reply": _reply,
    "drop": Delivery.drop,
}


@pytest.mark.parametrize("way", SETTLE)
async def test_a_lease_keeper_that_outruns_the_answer_abandons_nothing(
    bus: Bus, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Block the loop from the moment when Redis has settled the message until the keeper has
    checked its lease."""
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def handler(delivery: Delivery) -> None:
        stopping = asyncio.create_task(stop_the_loop(delivery))
        try:
            await SETTLE[way](delivery)
            await asyncio.sleep(0)
            outcome.set_result("settled")
        except asyncio.CancelledError:
            outcome.set_result("cancelled")
            raise
        finally:
            await stopping

    async def stop_the_loop(delivery: Delivery) -> None:
        with redis.Redis.from_url(bus.settings.redis_url) as client:
            lease = delivery.lease
            # Block in each turn of the loop, or the answer would come first.
            while cast("dict[str, int]", client.xpending(lease.stream, lease.group))["pending"]:  # noqa: ASYNC110
                await asyncio.sleep(0)
            while bus.keeper.count:
                client.ping()

    async with serving(bus, ["planner"], handler, places=1):
        run_id = await admit(bus)
        assert await asyncio.wait_for(outcome, 20) == "settled"
        if way == "commit":
            await ended(bus, run_id)
    assert "work abandoned" not in capsys.readouterr().out

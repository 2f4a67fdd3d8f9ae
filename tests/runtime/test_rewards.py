"""Rewards that the client posts."""

from __future__ import annotations

from typing import Any

import pytest

from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_ids import new_run_id
from loopline.runtime.errors import InputError


async def test_a_reward_is_accepted_for_a_run_that_is_not_on_the_bus(settings: BusSettings) -> None:
    """The run may have left the bus long ago."""
    run_id = new_run_id()
    async with Client.connect(settings) as client:
        posted = await client.reward(run_id, 1, reward_id="thumb", comment="good")
        again = await client.reward(run_id, 1, reward_id="thumb", comment="good")
        assert (posted.new, again.new) == (True, False)
        assert posted.reward.value == 1.0
        assert (await client.reward(run_id, 1)).new, "without an id it is another reward"


async def test_a_different_reward_with_a_known_id_is_refused(settings: BusSettings) -> None:
    run_id = new_run_id()
    async with Client.connect(settings) as client:
        await client.reward(run_id, 1, reward_id="thumb")
        with pytest.raises(InputError, match=r"another reward of .* has the id 'thumb'"):
            await client.reward(run_id, 0, reward_id="thumb")


async def test_a_session_is_rewarded_by_its_name(settings: BusSettings) -> None:
    async with Client.connect(settings) as client:
        posted = await client.reward_session("shop 7", -0.5, source="judge")
        assert (posted.reward.session, posted.reward.run_id) == ("shop 7", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": float("nan")}, "value: Input should be a finite number"),
        ({"value": float("inf")}, "value: Input should be a finite number"),
        ({"value": 10**400}, "value: Input should be"),
        ({"value": True}, "value: Input should be a valid number"),
        ({"value": "1"}, "value: Input should be a valid number"),
        ({"run_id": "../../etc"}, "run_id: String should match pattern"),
        ({"run_id": "f" * 1_000_000}, "run_id: String should match pattern"),
        ({"comment": "x" * 2_001}, "comment: String should have at most 2000 characters"),
        ({"comment": "\ud800"}, "comment: Input should be a valid string"),
        ({"source": "a\nb"}, "source: contains a character that can't be printed"),
        ({"source": ""}, "source: String should have at least 1 character"),
        ({"reward_id": "x" * 129}, "id: String should have at most 128 characters"),
        ({"turn": -1}, "turn: Input should be greater than or equal to 0"),
    ],
)
async def test_an_invalid_reward_is_refused_with_the_reason(
    settings: BusSettings, changes: dict[str, Any], message: str
) -> None:
    fields: dict[str, Any] = {"run_id": new_run_id(), "value": 1.0, **changes}
    async with Client.connect(settings) as client:
        with pytest.raises(InputError, match=message):
            await client.reward(**fields)
        waiting = [await client.bus.redis.xlen(s.rewards) for s in client.bus.keys.all_shards()]
        assert waiting == [0]

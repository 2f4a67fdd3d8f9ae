"""Posts rewards for past and current runs of a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic

from loopline.agents.rewards import Reward
from loopline.bus import Bus, RewardConflict, publish_reward
from loopline.runtime.client.run_ids import new_run_id
from loopline.runtime.errors import InputError


@dataclass(frozen=True, slots=True)
class PostedReward:
    """A reward that the bus has accepted."""

    reward: Reward
    new: bool
    """Whether the reward is new; False if the same reward was accepted before: it counts once."""


def new_reward(now: float, *, reward_id: str | None, **fields: Any) -> Reward:
    """Return a reward with its fields checked; without an id, it gets one from the time. Raises
    `InputError`."""
    try:
        return Reward(id=new_run_id(now) if reward_id is None else reward_id, **fields)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        detail = first["msg"].removeprefix("Value error, ")
        raise InputError(
            f"the reward's {where}: {detail}" if where else f"the reward: {detail}"
        ) from None


async def post_reward(bus: Bus, reward: Reward) -> PostedReward:
    """Send a reward to the recorder; a reward that is sent several times counts once. Raises
    `InputError` if its id belongs to another reward of the same run or session, and what
    `publish_reward` raises."""
    body = reward.model_dump_json().encode()
    try:
        new = await publish_reward(bus, reward.target, reward.id, body)
    except RewardConflict as error:
        raise InputError(str(error)) from error
    return PostedReward(reward, new)

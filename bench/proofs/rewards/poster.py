"""A program that posts the same rewards as its twins. After a kill it starts from the beginning,
since it does not know what it has sent.

Run as `python -m loopline.bench.proofs.rewards.poster SETTINGS COUNT FIRST`, with the settings of
the bus as JSON. It posts `COUNT` rewards, reward `FIRST` first, and prints how many it has posted.
"""

from __future__ import annotations

import asyncio
import sys

from loopline.agents.rewards import Reward
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client

TOGETHER = 50
"""Number of concurrent posts."""
PER_RUN = 100
"""Rewards of one run."""


def reward_of(number: int) -> Reward:
    """Return the reward with this number: the same in every process."""
    return Reward(
        id=f"reward-{number}",
        run_id=f"00000000-0000-7000-8000-{number // PER_RUN:012d}",
        agent=f"agent-{number % PER_RUN}",
        source="proof",
        value=float(number),
    )


async def post_all(settings: BusSettings, count: int, first: int) -> None:
    """Post them all."""
    numbers = [*range(first, count), *range(first)]
    async with Client.connect(settings) as client:
        for begin in range(0, count, TOGETHER):
            rewards = map(reward_of, numbers[begin : begin + TOGETHER])
            await asyncio.gather(
                *(
                    client.reward(
                        reward.run_id or "", reward.value, agent=reward.agent,
                        source=reward.source, reward_id=reward.id,
                    )
                    for reward in rewards
                )
            )  # fmt: skip
            print(min(begin + TOGETHER, count), flush=True)


if __name__ == "__main__":
    bus, how_many, where = sys.argv[1:]
    asyncio.run(post_all(BusSettings.model_validate_json(bus), int(how_many), int(where)))

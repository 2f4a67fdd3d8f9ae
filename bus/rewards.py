"""Rewards after the fact: published for the recorder, once per id.

A reward belongs to a target, which determines its shard: a run, or anything else that groups runs.
The bus may never have had the target, or no longer have it. The bus treats a reward as bytes.
"""

from __future__ import annotations

import hashlib

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.connection import retry_during_outage
from loopline.bus.errors import DeploymentChanged, MessageTooLarge, Overloaded, RewardConflict
from loopline.bus.keys import REWARD_IDS_LIFE_MS

MAX_REWARDS = 10_000
"""Maximum number of rewards per target: more can only come from an endless loop."""
MAX_REWARD_BYTES = 16_384


async def publish_reward(bus: Bus, target: str, reward_id: str, body: bytes) -> bool:
    """Hand a reward over to the recorder. True if it is new; False if the same reward was accepted
    before, even by a call whose answer was lost.

    Idempotent by target and id, for a week after the target's last reward, and repeated during
    outages. Raises `RewardConflict` if another reward of the target has this id, `Overloaded` (try
    again later), `MessageTooLarge`, `DeploymentChanged`, or `BusUnavailable`: in this last case the
    reward may have been accepted, and sending it again is safe.
    """
    if not reward_id:
        raise ValueError("a reward's id has at least one character")
    if len(body) > MAX_REWARD_BYTES:
        raise MessageTooLarge(
            f"a reward of {target}: {len(body)} bytes; the limit is {MAX_REWARD_BYTES}"
        )
    settings, shard = bus.settings, bus.keys.shard_of(target)
    keys = [shard.rewards, shard.reward_ids(target)]
    args: list[scripts.Value] = [
        target,
        reward_id,
        body,
        hashlib.sha256(body).hexdigest(),
        REWARD_IDS_LIFE_MS,
        settings.max_unrecorded,
        MAX_REWARDS,
        bus.agreement.epoch,
    ]
    result = await retry_during_outage(
        "reward",
        lambda: scripts.call(bus.redis, "reward", keys, args),
        give_up_after=bus.patience,
        where=f"at {settings.safe_url}",
    )
    match result[0]:
        case b"conflict":
            raise RewardConflict(
                f"another reward of {target} has the id {reward_id!r}: an id identifies "
                "one reward; for a new version, omit the id or choose another"
            )
        case b"overloaded":
            what, count, limit = result[1].decode(), int(result[2]), int(result[3])
            raise Overloaded(f"{count} {what}, the limit is {limit}: try again later")
        case b"closed":
            raise Overloaded("the number of shards is being changed: try again later")
        case b"changed":
            raise DeploymentChanged(
                f"a reward of {target} was not accepted: the settings of the deployment "
                f"{settings.prefix!r} have changed since this process joined it: restart this "
                "process"
            )
        case answer:
            return answer == b"accepted"

"""Moves what ended runs leave on the bus when the number of shards changes.

Nothing is in flight then, but ended runs can still be read, their callers' keys must still lead to
them, and their ends may be unannounced. Everything is copied before the deployment agrees on the
new number, and the originals are deleted afterwards. So a process that is killed at any point loses
nothing: the old number is in force and the copies expire, or the new one is and the originals do.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from loopline.bus import budgets
from loopline.bus.keys import Keys

_BY_NAME = frozenset(
    ("run", "journal", "log", "usage", "signals", "idempotency", "thread", "reward-ids")
)
"""Kinds of key that belong to the shard of their name."""
_HASHES = frozenset(("run", "reward-ids"))
_LISTS = frozenset(("journal", "usage", "signals"))
_BY_MEMBER = frozenset(("runs", "runs-of", "ends"))
"""Sorted sets whose members belong to the shard of their run."""
_BATCH = 500


@dataclass(frozen=True)
class _Key:
    key: str
    shard: int
    tag: str
    kind: str
    name: str

    def in_shard(self, shard: int) -> str:
        return f"{self.tag}{shard}}}:{self.kind}" + (f":{self.name}" if self.name else "")


async def reshard(
    redis: Redis,
    before: Keys,
    after: Keys,
    *,
    agree: Callable[[], Awaitable[bool]],
    keep_closed: Callable[[], Awaitable[object]] | None = None,
) -> bool:
    """Move everything to the shards of another number, which `agree` puts in force. `keep_closed`
    is awaited often until then: where workers are present, it keeps admission closed. Returns what
    `agree` returned; if that is False, the old number stays in force."""
    async for batch in _batches(redis, before.prefix):
        await _copy(redis, batch, before, after)
        if keep_closed is not None:
            await keep_closed()
    if not await agree():
        return False
    await budgets.redistribute(redis, before, after)
    async for batch in _batches(redis, before.prefix):
        await _delete_originals(redis, batch, after)
    return True


async def _batches(redis: Redis, prefix: str) -> AsyncIterator[list[_Key]]:
    """Yield the keys of ended runs in all shards. The prefix must not contain characters special in
    a pattern."""
    tag = f"{{{prefix}:"
    form = re.compile(rf"{re.escape(tag)}([0-9]{{1,9}})\}}:([a-z-]+)(?::(.*))?", re.DOTALL)
    cursor: int | None = None
    while cursor != 0:
        cursor, names = await redis.scan(cursor or 0, match=f"{tag}*", count=_BATCH)
        batch: list[_Key] = []
        for raw in names:
            key = raw.decode()
            match = form.fullmatch(key)
            if match is not None and match[2] in _BY_NAME | _BY_MEMBER:
                batch.append(_Key(key, int(match[1]), tag, match[2], match[3] or ""))
        yield batch


async def _copy(redis: Redis, batch: list[_Key], before: Keys, after: Keys) -> None:
    """Copy what is in its shard. Anything elsewhere is an old copy, from a change that ended before
    its agreement: the original may have changed since."""
    for key in batch:
        if key.kind in _BY_NAME:
            target = after.shard_of(key.name).index
            if before.shard_of(key.name).index == key.shard != target:
                await _copy_key(redis, key, key.in_shard(target))
            continue
        for target, members in (await _members_elsewhere(redis, key, after)).items():
            members = {
                member: score
                for member, score in members.items()
                if before.shard_of(_run_of(member)).index == key.shard
            }
            if not members:
                continue
            name = key.in_shard(target)
            await redis.zadd(name, members)
            life = max(await redis.pttl(key.key), await redis.pttl(name))
            if life > 0:
                await redis.pexpire(name, life)


async def _copy_key(redis: Redis, key: _Key, target: str) -> None:
    """Copy a key with its life, by commands that every user of the bus may send. A key that has
    expired meanwhile is left out."""
    life = await redis.pttl(key.key)
    async with redis.pipeline(transaction=False) as pipe:
        pipe.delete(target)
        content: Any
        if key.kind in _HASHES:
            content = await redis.hgetall(key.key)  # pyright: ignore
            if content:
                pipe.hset(target, mapping=content)  # pyright: ignore
        elif key.kind in _LISTS:
            content = await redis.lrange(key.key, 0, -1)  # pyright: ignore
            if content:
                pipe.rpush(target, *content)  # pyright: ignore
        elif key.kind == "log":
            content = await redis.xrange(key.key)
            for entry_id, fields in content:
                pipe.xadd(target, fields, id=entry_id)
        else:
            content = await redis.get(key.key)
            if content is not None:
                pipe.set(target, content)  # pyright: ignore
        if life > 0:
            pipe.pexpire(target, life)
        if content:
            await pipe.execute()


async def _delete_originals(redis: Redis, batch: list[_Key], after: Keys) -> None:
    for key in batch:
        if key.kind in _BY_NAME:
            if after.shard_of(key.name).index != key.shard:
                await redis.delete(key.key)
            continue
        for members in (await _members_elsewhere(redis, key, after)).values():
            await redis.zrem(key.key, *members)


async def _members_elsewhere(redis: Redis, key: _Key, after: Keys) -> dict[int, dict[bytes, float]]:
    """The members of a sorted set that belong to other shards, by shard, with their scores."""
    elsewhere: dict[int, dict[bytes, float]] = defaultdict(dict)
    for member, score in await redis.zrange(key.key, 0, -1, withscores=True):
        target = after.shard_of(_run_of(member)).index
        if target != key.shard:
            elsewhere[target][member] = score
    return elsewhere


def _run_of(member: bytes) -> str:
    """The run of a member: its id, or what stands before the guard of a wait."""
    return member.decode().partition("/")[0]

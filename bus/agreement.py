"""The settings that all processes of a deployment share, stored on the bus.

The first process that joins writes the agreement atomically; later processes adopt it. A process
that *names* a different value is refused with an error that shows both values and what to do. So no
process can look for runs in the wrong shards, or take others' leases early.

The agreement is valid as long as any worker uses it. A process that starts a deployment (`runtime
up`), or one that names a value, may replace the agreement when no worker is running; changing the
number of shards also requires that nothing is in flight. A crash locks nothing: the presence of a
dead worker expires after three beats. A replacement has a new epoch, which all processes notice
quickly: workers drain and join again. No run is admitted under an old epoch, so no run ends up in a
shard that is not read.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from loopline.bus import scripts
from loopline.bus.clock import Clock
from loopline.bus.connection import is_outage
from loopline.bus.errors import DeploymentChanged, DeploymentMismatch
from loopline.bus.keys import Keys, Shard, keys_with_prefix
from loopline.bus.resharding import reshard
from loopline.bus.settings import BusSettings

Value = int | float | bool

Standing = Literal["guest", "worker", "founder"]
"""How a process joins. A guest adopts the existing values. A worker that names a value, and a
founder with all its values, may replace an agreement that no worker uses."""

FADE_SECONDS = 8.0
"""Seconds after which the presence of a killed worker has expired."""
CLOSED_MS = 10_000
READ_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """Values that a deployment has agreed on."""

    epoch: str
    """Epoch of the agreement; later ones are greater."""
    shared: Mapping[str, Value]
    """Settings of the bus that all processes share."""
    by: str
    """Process that wrote it: host and pid."""
    fields: Mapping[str, str]
    """Further agreed values, which the bus does not interpret."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """Number of items on the bus in the shards of an agreement."""

    runs: int
    messages: int
    unrecorded: int
    dead_letters: int

    def __bool__(self) -> bool:
        return bool(self.runs or self.messages or self.unrecorded or self.dead_letters)

    def __str__(self) -> str:
        parts = (
            (self.runs, "runs in flight"),
            (self.messages, "messages in work streams"),
            (self.unrecorded, "ended runs, usage entries or rewards that no recorder has written"),
            (self.dead_letters, "dead letters"),
        )
        return ", ".join(f"{count} {what}" for count, what in parts if count) or "nothing"


def _agreement(fields: dict[bytes, bytes]) -> Agreement:
    text = {name.decode(): value.decode() for name, value in fields.items()}
    shared: dict[str, Value] = json.loads(text.pop("shared"))
    return Agreement(text.pop("epoch"), shared, text.pop("by"), text)


def _pairs(reply: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


async def read(redis: Redis, keys: Keys) -> Agreement | None:
    """The current agreement; None if no process has joined for a week, or ever."""
    fields: dict[bytes, bytes] = await redis.hgetall(keys.deployment)  # pyright: ignore
    return _agreement(fields) if b"epoch" in fields else None


async def read_agreement_at(settings: BusSettings) -> Agreement | None:
    """Read the agreement from the server at a URL. Raises what redis-py raises."""
    async with Redis.from_url(
        settings.redis_url,
        socket_timeout=READ_TIMEOUT_SECONDS,
        socket_connect_timeout=READ_TIMEOUT_SECONDS,
    ) as redis:
        return await read(redis, Keys(settings.prefix, settings.shards))


class DeploymentJoin:
    """Joins one process to its deployment."""

    def __init__(
        self, redis: Redis, settings: BusSettings, clock: Clock, claims: Mapping[str, str]
    ) -> None:
        """`claims`: further fields, written only if they do not exist yet."""
        self._claims = claims
        self._redis = redis
        self._settings = settings
        self._clock = clock
        self._keys = Keys(settings.prefix, settings.shards)

    async def join(self, standing: Standing) -> Agreement:
        """Join, and return the agreement. Raises `DeploymentMismatch`."""
        while True:
            agreement = await read(self._redis, self._keys)
            if agreement is None:
                agreement = await self._create_or_preview()
            differing = self._differing_values(agreement, standing)
            if not differing:
                return await self._ensure_claims(agreement)
            refused = {name: differing[name] for name in self._settings.named & {*differing}}
            if standing == "guest":
                raise DeploymentMismatch(self._mismatch_message(agreement, refused, ""))
            shared = await self._values_to_replace(agreement, standing, differing, refused)
            if shared is None:
                return await self._ensure_claims(agreement)
            if await self._replace(agreement, shared):
                return await read(self._redis, self._keys) or agreement

    async def _replace(self, agreement: Agreement, shared: Mapping[str, Value]) -> bool:
        async def agree() -> bool:
            return await replace(self._redis, self._keys, agreement.epoch, shared, self._claims)

        before, after = int(agreement.shared["shards"]), int(shared["shards"])
        if before == after:
            return await agree()
        prefix = self._keys.prefix
        return await reshard(self._redis, Keys(prefix, before), Keys(prefix, after), agree=agree)

    async def _ensure_claims(self, agreement: Agreement) -> Agreement:
        """The agreement with this process's claims, unless another running process has made
        different claims. Then it contains those, and the caller decides what to do."""
        if all(agreement.fields.get(name) == claim for name, claim in self._claims.items()):
            return agreement
        agreement = await self._write_fields(self._claims)
        if all(agreement.fields.get(name) == claim for name, claim in self._claims.items()):
            return agreement
        if not await self._live_workers():
            await replace(self._redis, self._keys, agreement.epoch, agreement.shared, self._claims)
        return await read(self._redis, self._keys) or agreement

    async def _create_or_preview(self) -> Agreement:
        try:
            return await self._write_fields(self._initial_fields())
        except ResponseError as error:
            # Full, or a replica: it can still be read. `watch` writes the agreement later.
            if not is_outage(error):
                raise
            first = {
                name.encode(): value.encode() for name, value in self._initial_fields().items()
            }
            return _agreement(first)

    def _initial_fields(self) -> dict[str, str]:
        return {
            "epoch": new_epoch(self._clock.now()),
            "by": _process_label(),
            **_shared_settings(self._settings),
        }

    async def _write_fields(self, fields: Mapping[str, str]) -> Agreement:
        args = [part for pair in fields.items() for part in pair]
        reply = await scripts.call(self._redis, "join", [self._keys.deployment], args)
        return _agreement(_pairs(reply))

    async def renew(self, agreement: Agreement) -> None:
        """Write the agreement again after a flush or a restart that lost the data."""
        await self._write_fields(
            {
                **agreement.fields,
                "epoch": agreement.epoch,
                "by": agreement.by,
                "shared": json.dumps(dict(agreement.shared)),
            }
        )

    def _differing_values(self, agreement: Agreement, standing: Standing) -> dict[str, Value]:
        shared_values = self._settings.shared
        counted = shared_values if standing == "founder" else self._settings.named
        return {
            name: shared_values[name]
            for name in counted
            if agreement.shared.get(name) != shared_values[name]
        }

    async def _values_to_replace(
        self,
        agreement: Agreement,
        standing: Standing,
        differing: Mapping[str, Value],
        refused: Mapping[str, Value],
    ) -> dict[str, Value] | None:
        """The new values to agree on; None if the existing ones are to be adopted. Raises
        `DeploymentMismatch`."""
        live_names = await self._live_workers()
        if live_names:
            if refused:
                raise DeploymentMismatch(
                    self._mismatch_message(agreement, refused, f"{_join_names(live_names)} running")
                )
            return None
        shared = {**agreement.shared, **differing}
        if "shards" in differing:
            in_flight_count = await in_flight(
                self._redis, self._keys.prefix, int(agreement.shared["shards"])
            )
            if in_flight_count and "shards" in refused:
                raise DeploymentMismatch(
                    self._mismatch_message(agreement, refused, f"it holds {in_flight_count}")
                )
            if in_flight_count:
                shared["shards"] = agreement.shared["shards"]
        return None if shared == dict(agreement.shared) else shared

    async def _live_workers(self) -> list[str]:
        """Workers that are present after the presence of killed ones has expired."""
        first = await self._worker_records()
        waited = 0.0
        while first and waited < FADE_SECONDS:
            await asyncio.sleep(0.25)
            waited += 0.25
            now = await self._worker_records()
            if alive := [name for name, word in now.items() if first.get(name) != word]:
                return alive
            first = now
        return list(first)

    async def _worker_records(self) -> dict[str, bytes]:
        names = [n.decode() for n in await self._redis.zrange(self._keys.workers, 0, -1)]
        if not names:
            return {}
        words = await self._redis.mget([self._keys.worker(name) for name in names])
        return {name: word for name, word in zip(names, words, strict=True) if word}

    def _mismatch_message(
        self, agreement: Agreement, refused: Mapping[str, Value], why: str
    ) -> str:
        parts = [
            f"bus.{name} is {agreement.shared.get(name)} in the deployment "
            f"{self._settings.prefix!r} at {self._settings.safe_url}, but this process sets "
            f"{value}"
            for name, value in sorted(refused.items())
        ]
        change = "stop the whole deployment (`runtime down`), then start it with the new value"
        if "shards" in refused:
            change = f"`runtime shards {refused['shards']}`"
        because = f" ({why})" if why else ""
        return (
            f"{'; '.join(parts)}{because}: omit it to use the deployment's value; to"
            f" change it, {change}"
        )


def _shared_settings(settings: BusSettings) -> dict[str, str]:
    return {"shared": json.dumps(settings.shared)}


def _process_label() -> str:
    return f"{socket.gethostname()}, pid {os.getpid()}"


def _join_names(names: list[str]) -> str:
    examples = ", ".join(sorted(names)[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"the workers {examples}{more} are" if len(names) > 1 else f"the worker {examples} is"


def new_epoch(now: float) -> str:
    return f"{int(now * 1000):015d}-{secrets.token_hex(4)}"


async def replace(
    redis: Redis,
    keys: Keys,
    epoch: str,
    shared: Mapping[str, Value],
    claims: Mapping[str, str] | None = None,
    *,
    with_workers_present: bool = False,
) -> bool:
    """Agree on other values, and further fields. Returns False if workers are present, or another
    process was faster."""
    seconds, micro = await redis.time()
    later = new_epoch(seconds + micro / 1e6)
    if later <= epoch:  # The server's clock has gone back.
        later = f"{int(epoch.partition('-')[0]) + 1:015d}-{secrets.token_hex(4)}"
    args: list[scripts.Value] = [epoch, keys.worker(""), int(with_workers_present)]
    args += ["epoch", later, "by", _process_label(), "shared", json.dumps(dict(shared))]
    args += [part for claim in (claims or {}).items() for part in claim]
    answer = await scripts.call(redis, "replace", [keys.deployment, keys.workers], args)
    return answer[0] == 1


async def publish_epoch(redis: Redis, shards: Iterable[Shard], epoch: str) -> None:
    """Write an epoch for the shards' scripts: they admit no run under an earlier one."""
    for shard in shards:
        await scripts.call(redis, "shard", [shard.deployment], ["epoch", epoch])


async def in_flight(redis: Redis, prefix: str, shards: int) -> InFlight:
    """Count what would be lost if the number of shards changed now."""
    runs = messages = unrecorded = dead = 0
    for shard in Keys(prefix, shards).all_shards():
        for key in (shard.active, shard.waits, shard.turn_waits):
            runs += int(await redis.zcard(key))
        unrecorded += int(await redis.xlen(shard.trajectories))
        unrecorded += int(await redis.xlen(shard.ledger))
        unrecorded += int(await redis.xlen(shard.rewards))
        dead += int(await redis.xlen(shard.dead))
        for key in await keys_with_prefix(redis, shard.work("")):
            messages += int(await redis.xlen(key))
        for key in await keys_with_prefix(redis, shard.delayed("")):
            messages += int(await redis.zcard(key))
    return InFlight(runs, messages, unrecorded, dead)


async def watch(redis: Redis, keys: Keys, agreement: Agreement, joining: DeploymentJoin) -> None:
    """Keep the agreement alive. Raises `DeploymentChanged` when another one is in force."""
    answer = await scripts.call(redis, "watch", [keys.deployment], [agreement.epoch])
    if answer == 0:
        await joining.renew(agreement)
        await publish_epoch(redis, keys.all_shards(), agreement.epoch)
    elif answer == 2:
        raise DeploymentChanged(
            f"the settings of the deployment {keys.prefix!r} have changed since this process"
            " joined it: restart this process"
        )

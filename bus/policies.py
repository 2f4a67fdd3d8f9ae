"""The weights of each policy: its published versions, and the version in use.

A policy is a model pool (`slm`), or a pool with a named adapter (`slm/caller`). Version 0 is the
pool's model without an adapter. Publishing, pinning and rolling back change the version that new
requests get, and notify the workers that serve the policy.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated

import structlog
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.canaries import Canary
from loopline.bus.connection import OUTAGE, pause_before
from loopline.bus.errors import BusError
from loopline.bus.keys import POLICY_LIFE_MS
from loopline.bus.policy_log import MAX_ENTRIES, LogEntry, PolicyAction, this_process

MAX_VERSIONS = 200
"""Maximum number of versions kept of each policy; the oldest are dropped first."""
REFRESH_SECONDS = 30.0
"""Seconds between two reads of all policies, with or without a notice: a restarted server may have
lost one."""
MAX_SHOWN = 200
"""Maximum number of characters of an invalid name that an error message shows."""
MAX_BYTES = 2 * 1024 * 1024
"""Maximum size of a stored policy in bytes: twice the size of `MAX_VERSIONS` versions with the
longest paths."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_.-]{1,64})?")
_PIN = re.compile(r"(?P<name>.+)@(?P<version>[0-9]{1,16})", re.DOTALL)
_Version = Annotated[int, Field(ge=0, le=2**53)]

log = structlog.get_logger("loopline.bus.policies")


class PolicyError(BusError):
    """An unknown policy or version; the message lists the existing ones."""


class PolicyVersion(BaseModel):
    """One set of adapter weights."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    version: _Version
    path: str = Field(max_length=4096)
    """Path of the adapter, as all workers that serve the policy see it."""
    published: float
    """Time of publication, in Unix seconds by the bus's clock."""


class Policy(BaseModel):
    """A policy's versions, and which one is in use."""

    model_config = ConfigDict(frozen=True)

    name: str
    versions: tuple[PolicyVersion, ...] = Field(default=(), max_length=MAX_VERSIONS)
    current: _Version = 0
    earlier: tuple[_Version, ...] = Field(default=(), max_length=MAX_VERSIONS)
    """Versions that were in use before, most recent last: a rollback returns to that one."""
    canary: Canary | None = None
    """A version on trial, in addition to the version in use."""

    @property
    def pool(self) -> str:
        return pool_of(self.name)

    def path_of(self, version: int) -> str | None:
        """Path of a version's adapter; None for version 0, or a version that is no longer kept."""
        return next((entry.path for entry in self.versions if entry.version == version), None)

    def published_at(self, version: int) -> float | None:
        """Publication time of a version, in Unix seconds; None as for `path_of`. Number and time
        together identify a version: after a loss of all data, numbers start from 1 again."""
        return next((entry.published for entry in self.versions if entry.version == version), None)

    @property
    def newest(self) -> int:
        """Greatest version number; 0 if no version was ever published."""
        return max((entry.version for entry in self.versions), default=0)

    def published(self, path: str, now: float) -> Policy:
        """The policy with a new version in use."""
        return self.added(path, now)._with_current(self.newest + 1)

    def added(self, path: str, now: float) -> Policy:
        """The policy with a new version that does not serve yet."""
        new = PolicyVersion(version=self.newest + 1, path=path, published=now)
        return self.model_copy(update={"versions": (*self.versions, new)[-MAX_VERSIONS:]})

    def with_version_in_use(self, version: int) -> Policy:
        """The policy with this version in use. Raises PolicyError."""
        self._require(version)
        return self._with_current(version)

    def with_canary(self, canary: Canary) -> Policy:
        """The policy with this version on trial. Raises PolicyError if the version does not exist
        or already serves, or if there is a canary already."""
        self._require(canary.version)
        if self.canary is not None:
            raise PolicyError(
                f"policy {self.name!r} has a canary: version {self.canary.version}. Wait for its "
                f"decision, or end it with `runtime policies canary {self.name} --stop`"
            )
        if canary.version == self.current:
            raise PolicyError(
                f"version {canary.version} of policy {self.name!r} is the one in use: there is "
                "nothing to compare it with. Name another, or publish one with `runtime policies "
                "publish --no-use`"
            )
        if canary.mode == "share" and canary.share == 1:
            raise PolicyError(
                "a canary that answers all runs leaves none to compare it with: use a smaller "
                "share or `--shadow`, or put the version in use with `runtime policies pin`"
            )
        new = canary.model_copy(update={"against": self.current})
        return self.model_copy(update={"canary": new})

    def promoted(self, canary: Canary) -> Policy:
        """The policy with that canary in use. Raises PolicyError if the canary has ended
        meanwhile."""
        self._require_live(canary)
        return self._with_current(canary.version)

    def without_canary(self, canary: Canary | None = None) -> Policy:
        """The policy without its version on trial, or without this canary. Raises PolicyError if
        there is no version on trial, or if this canary has ended meanwhile."""
        if self.canary is None or canary is not None:
            self._require_live(canary)
        return self.model_copy(update={"canary": None})

    def _require_live(self, canary: Canary | None) -> None:
        if self.canary is None:
            raise PolicyError(f"policy {self.name!r} has no canary")
        if canary != self.canary:
            raise PolicyError(f"policy {self.name!r} has another canary by now")

    def _require(self, version: int) -> None:
        numbers = [0, *(entry.version for entry in self.versions)]
        if version not in numbers:
            raise PolicyError(
                f"policy {self.name!r} has no version {version}; there are: "
                f"{', '.join(map(str, numbers))}"
            )

    def rolled_back(self) -> Policy:
        """The policy with the previously used version in use. Raises PolicyError."""
        if not self.earlier:
            raise PolicyError(f"policy {self.name!r} had no other version in use before")
        *earlier, before = self.earlier
        update = {"current": before, "earlier": tuple(earlier), "canary": None}
        return self.model_copy(update=update)

    def without_versions(self, versions: Collection[int]) -> Policy:
        """The policy without these versions, which can't be chosen any more. Some versions stay:
        the one in use, the one that a rollback would choose, one on trial, and the newest, whose
        number is never reused."""
        trial = () if self.canary is None else (self.canary.version,)
        gone = {*versions} - {0, self.newest, self.current, *self.earlier[-1:], *trial}
        earlier = self.earlier
        if (*earlier, self.current)[:2] == (0, 1) and 1 in gone:
            # The plain model was not chosen before the first version, and must not appear so now.
            earlier = earlier[1:]
        return self.model_copy(
            update={
                "versions": tuple(entry for entry in self.versions if entry.version not in gone),
                "earlier": tuple(entry for entry in earlier if entry not in gone),
            }
        )

    def _with_current(self, version: int) -> Policy:
        """Put a version in use; this ends a comparison with the previous version."""
        earlier = (*self.earlier, self.current)[-MAX_VERSIONS:]
        return self.model_copy(update={"current": version, "earlier": earlier, "canary": None})


def pool_of(policy: str) -> str:
    """The model pool whose workers serve a policy."""
    return split_pin(policy)[0].partition("/")[0]


def split_pin(policy: str) -> tuple[str, int | None]:
    """A policy's name and, if a run specifies one, the only version that may answer for it:
    `slm/caller@3`."""
    pin = _PIN.fullmatch(policy)
    return (policy, None) if pin is None else (pin["name"], int(pin["version"]))


@dataclass(frozen=True)
class PolicySnapshot:
    """All policies on the bus."""

    policies: tuple[Policy, ...]
    """Readable policies, by name."""
    unreadable: Mapping[str, str]
    """Reason why a policy can't be read, by name: another program or a newer version wrote it."""


async def load_policies(bus: Bus) -> PolicySnapshot:
    """All policies that were ever published. An unreadable policy does not hide others."""
    bodies: dict[bytes, bytes] = await bus.redis.hgetall(bus.keys.policies)  # pyright: ignore
    readable: list[Policy] = []
    unreadable: dict[str, str] = {}
    for key, body in bodies.items():
        name = key.decode("utf-8", "backslashreplace")
        try:
            readable.append(_read(name, body))
        except PolicyError as error:
            unreadable[name[:MAX_SHOWN]] = str(error)
    return PolicySnapshot(tuple(sorted(readable, key=lambda policy: policy.name)), unreadable)


async def load_policy(bus: Bus, name: str) -> Policy | None:
    """One policy; None if it was never published. Raises PolicyError if it can't be read."""
    body: bytes | None = await bus.redis.hget(bus.keys.policies, name)  # pyright: ignore
    return None if body is None else _read(name, body)


async def policies(bus: Bus) -> list[Policy]:
    """All published policies that can be read, by name."""
    return [*(await load_policies(bus)).policies]


async def change(
    bus: Bus,
    name: str,
    to: Callable[[Policy], Policy],
    *,
    by: str = "",
    evidence: Mapping[str, JsonValue] | None = None,
) -> Policy:
    """Replace a policy's state with the result of `to`; return the new state. The log records who
    changed it (`by`; by default this process) and the evidence.

    Raises PolicyError for an invalid name or an unreadable policy, and what `to` raises.
    """
    if not _NAME.fullmatch(name):
        raise PolicyError(
            f"{name!r} is not a policy's name: a pool, or pool/adapter, of letters, digits, - and _"
        )
    keys = [bus.keys.policies, bus.keys.policy_changes, bus.keys.policy_log]
    while True:
        before: bytes = await bus.redis.hget(bus.keys.policies, name) or b""  # pyright: ignore
        current = _read(name, before) if before else Policy(name=name)
        after = _with_publish_times(to(current), current, bus.clock.now())
        entry = _log_entry(current, after, bus.clock.now(), by or this_process(), evidence or {})
        args: list[scripts.Value] = [
            name,
            before,
            after.model_dump_json().encode(),
            POLICY_LIFE_MS,
            b"" if entry is None else entry.model_dump_json().encode(),
            MAX_ENTRIES,
        ]
        if await scripts.call(bus.redis, "policy", keys, args):
            return after


async def publish(bus: Bus, name: str, path: str) -> Policy:
    """Answer new requests of a policy with the adapter at `path`."""
    return await change(bus, name, lambda policy: policy.published(path, time.time()))


async def publish_first(bus: Bus, name: str, path: str) -> Policy:
    """Start a policy with the adapter at `path`, unless a version was chosen for it before."""

    def first(policy: Policy) -> Policy:
        history = policy.versions or policy.earlier
        return policy if history else policy.published(path, time.time())

    return await change(bus, name, first)


async def follow(bus: Bus) -> AsyncGenerator[list[Policy]]:
    """Yield all policies now, and again whenever one may have changed. Survives outages."""
    last = b"0-0"
    failures = 0
    last_errors: Mapping[str, str] = {}
    while True:
        try:
            # Read before the state: a change in between is reported once too often, never missed.
            newest = await bus.redis.xrevrange(bus.keys.policy_changes, count=1)
            last = newest[0][0] if newest else b"0-0"
            if await bus.redis.pexpire(bus.keys.policies, POLICY_LIFE_MS):
                await bus.redis.pexpire(bus.keys.policy_changes, POLICY_LIFE_MS)
            all_of_them = await load_policies(bus)
            for name, why in all_of_them.unreadable.items():
                if last_errors.get(name) != why:
                    log.error("policy skipped", policy=name, error=why)
            last_errors = all_of_them.unreadable
            yield [*all_of_them.policies]
            failures = 0
            waited = 0.0
            while waited < REFRESH_SECONDS:
                streams = await bus.blocking.xread(
                    {bus.keys.policy_changes: last},
                    count=1,
                    block=int(bus.settings.block_seconds * 1000),
                )
                if streams:
                    break
                waited += bus.settings.block_seconds
        except OUTAGE as error:
            failures += 1
            if failures & (failures - 1) == 0:
                log.warning("policies unreadable", error=str(error), tries=failures)
            await asyncio.sleep(pause_before(failures))


def _log_entry(
    before: Policy, after: Policy, now: float, by: str, evidence: Mapping[str, JsonValue]
) -> LogEntry | None:
    """The log entry for a change; None if nothing changed."""
    action: PolicyAction
    version = after.current
    if after.canary is not None and before.canary is None:
        action, version = "canary", after.canary.version
        evidence = {**after.canary.model_dump(exclude={"by"}), **evidence}
    elif before.canary is not None and after.canary is None and evidence:
        promoted = before.canary.version == after.current
        action = "canary promoted" if promoted else "canary rolled back"
    elif after.current != before.current and after.newest > before.newest:
        action = "publish"
    elif after.current != before.current:
        action = "rollback" if len(after.earlier) < len(before.earlier) else "pin"
    elif before.canary is not None and after.canary is None:
        action, version = "canary stopped", before.canary.version
    elif after.newest > before.newest:
        action, version = "add", after.newest
    elif len(after.versions) < len(before.versions):
        action = "forget"
    elif after.earlier != before.earlier:
        action = "pin"
    else:
        return None
    return LogEntry(
        at=now,
        policy=after.name,
        action=action,
        version=version,
        before=before.current,
        by=by[:200],
        evidence=evidence,
    )


def _with_publish_times(policy: Policy, before: Policy, now: float) -> Policy:
    """The policy with the publication time of new versions and the start of a new canary set to
    now, by the bus's clock, whichever machine created them."""
    previous_versions = {entry.version for entry in before.versions}
    versions = tuple(
        entry if entry.version in previous_versions else entry.model_copy(update={"published": now})
        for entry in policy.versions
    )
    update: dict[str, object] = {"versions": versions}
    if policy.canary is not None and before.canary is None:
        update["canary"] = policy.canary.model_copy(update={"since": now})
    return policy.model_copy(update=update)


def _read(name: str, body: bytes) -> Policy:
    """Parse a stored policy. Raises PolicyError."""
    if not _NAME.fullmatch(name):
        raise PolicyError(f"{name[:MAX_SHOWN]!r} is not a policy's name")
    if len(body) > MAX_BYTES:
        raise PolicyError(f"policy {name!r} has {len(body):,} bytes; the limit is {MAX_BYTES:,}")
    try:
        policy = Policy.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole policy"
        raise PolicyError(
            f"policy {name!r} can't be read ({where[:MAX_SHOWN]}: {first['msg'][:MAX_SHOWN]}):"
            " another program or a newer version wrote it. To start over, delete its name from the"
            " hash of policies (HDEL)"
        ) from error
    if policy.name != name:
        raise PolicyError(
            f"the value stored as policy {name!r} is policy {policy.name[:MAX_SHOWN]!r}"
        )
    return policy

"""Keys of the gateway's callers. Only a key's SHA-256 is stored. A key has 256 random bits, so it
can't be derived from the digest, and a lookup by digest compares no part of the key itself."""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import os
import secrets
import time
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loopline.bus import Bus, Limits, Spent, retry_during_outage
from loopline.bus.bounded import Remembered
from loopline.bus.policies import split_pin
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.gateway.errors import ApiError
from loopline.workers.admission import TENANT_TAG
from loopline.workers.atomic_files import write_atomic

PREFIX = "sk-loopline-"
MEMORY_SECONDS = 1.0
"""Seconds for which a gateway may still accept a key after it was revoked."""
MAX_REMEMBERED = 4_096
"""Maximum number of keys in a gateway's cache of valid keys."""


class ApiKey(BaseModel):
    """Record of a key on the bus."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(pattern=r"^[a-z0-9]{12}$")
    """Id of the key in `runtime keys` and in the tags of runs."""
    name: str = Field(default="", max_length=64)
    created: float
    """Time of creation in Unix seconds."""
    models: tuple[str, ...] = ("*",)
    """Patterns of the models that the caller may use, such as `slm/*` and `workflow/*`."""

    tokens_per_day: int | None = Field(default=None, ge=1)
    """Tokens of prompts and completions since midnight UTC; None means no limit."""
    micro_dollars_per_day: int | None = Field(default=None, ge=1)
    seconds_per_day: float | None = Field(default=None, gt=0)
    """Total seconds of the caller's runs, each from admission to end."""
    tenant: str = Field(default="", max_length=64)
    """Tenant of the key; all keys of a tenant share its budgets."""
    dashboard: Literal["none", "read", "write"] = "none"
    """Whether the caller may see the dashboard, which shows all runs, or also make changes
    there."""
    approves: bool = False
    """Whether the caller may see and decide pending approvals of all runs."""
    revoked: bool = False
    webhook_secret: str = Field(default_factory=lambda: new_webhook_secret(), max_length=100)
    """Secret for signing messages to the caller's webhooks."""

    @property
    def limits(self) -> Limits:
        """Daily limits of the key."""
        return Limits(
            self.tokens_per_day or 0,
            self.micro_dollars_per_day or 0,
            round(1000 * (self.seconds_per_day or 0)),
        )

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the key's runs."""
        return {TENANT_TAG: self.tenant} if self.tenant else {}

    def allows(self, model: str) -> bool:
        """Whether the key allows a model. A key for a policy also allows each of its versions."""
        if "*" in self.models:
            return True
        names = (model, split_pin(model)[0])
        return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.models)


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def new_webhook_secret() -> str:
    """Return a new secret in the format of the Standard Webhooks scheme."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def add(bus: Bus, key: str, record: ApiKey) -> None:
    """Register a key. An existing key stays unchanged."""
    await bus.redis.hsetnx(bus.keys.api_keys, digest(key), record.model_dump_json())  # pyright: ignore


class Authentication:
    """Authenticates callers by their keys. Valid keys are cached for `MEMORY_SECONDS`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._known: Remembered[str, tuple[float, ApiKey]] = Remembered(MAX_REMEMBERED)
        """Valid keys by digest, with the times (monotonic seconds) at which they expire here."""

    async def caller(self, authorization: str | None) -> ApiKey:
        """Return the key of the caller. Raises `ApiError` 401."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise ApiError(
                401,
                "You didn't provide an API key: send it as `Authorization: Bearer KEY`.",
                code="missing_api_key",
            )
        name, now = digest(key.strip()), time.monotonic()
        remembered = self._known.get(name)
        if remembered is not None and now < remembered[0]:
            return remembered[1]
        self._known.forget(name)
        body: bytes | None = await self._bus.redis.hget(self._bus.keys.api_keys, name)  # pyright: ignore
        record = _read(body) if body else None
        if record is None or record.revoked:
            raise ApiError(
                401, "This API key is not known here, or was revoked.", code="invalid_api_key"
            )
        self._known.set(name, (now + MEMORY_SECONDS, record))
        return record


async def revoke(bus: Bus, key_id: str) -> bool:
    """Refuse a key from now on; return False if no key has this id. The key's record stays, so that
    the next gateway of a state directory does not register the key again."""
    for field, record in await _records(bus):
        if record.id == key_id:
            body = record.model_copy(update={"revoked": True}).model_dump_json()
            await bus.redis.hset(bus.keys.api_keys, field, body)  # pyright: ignore
            return True
    return False


async def by_id(bus: Bus, key_id: str) -> ApiKey | None:
    """Return the record of a key, revoked or not."""
    return next((record for _, record in await _records(bus) if record.id == key_id), None)


@dataclass(frozen=True)
class KeyUse:
    """A key and the usage of its runs since midnight (UTC)."""

    key: ApiKey
    spent: Spent


async def uses(bus: Bus) -> tuple[list[KeyUse], list[str]]:
    """Return all readable keys, oldest first, and the ids of the others, which no gateway of this
    version accepts."""
    bodies: dict[bytes, bytes] = await bus.redis.hgetall(bus.keys.api_keys)  # pyright: ignore
    records = [(field.decode(errors="replace"), _read(body)) for field, body in bodies.items()]
    readable = sorted((key for _, key in records if key is not None), key=lambda key: key.created)
    unreadable = sorted(field[:12] for field, key in records if key is None)
    return [KeyUse(key, await bus.spent(key.id)) for key in readable], unreadable


async def _records(bus: Bus) -> list[tuple[str, ApiKey]]:
    fields: dict[bytes, bytes] = await bus.redis.hgetall(bus.keys.api_keys)  # pyright: ignore
    return [
        (field.decode(), record)
        for field, body in fields.items()
        if (record := _read(body)) is not None
    ]


def _read(body: bytes) -> ApiKey | None:
    try:
        return ApiKey.model_validate_json(body)
    except ValidationError:
        return None


async def by_digest(bus: Bus, key_digest: str) -> ApiKey | None:
    """Return the record of a key, revoked or not."""
    body: bytes | None = await bus.redis.hget(bus.keys.api_keys, key_digest)  # pyright: ignore
    return _read(body) if body else None


async def own_key(bus: Bus, state: StateDirectory) -> str:
    """Return the key of this state directory, which its first gateway creates for the operator.
    Retries during outages: a gateway may start while Redis restarts."""
    key = key_file(state)
    record = ApiKey(
        id=digest(key)[:12],
        name="runtime up",
        created=bus.clock.now(),
        dashboard="write",
        approves=True,
    )
    await retry_during_outage("own key", lambda: add(bus, key, record))
    return key


def key_file(state: StateDirectory) -> str:
    """Return the key in the state directory; create it if it doesn't exist. Raises OSError."""
    path = state.gateway_key
    if not path.exists():
        state.path.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        write_atomic(temporary, new_key() + "\n", private=True)
        # If several gateways start together, one creates the file, and all read it.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    return path.read_text("ascii").strip()

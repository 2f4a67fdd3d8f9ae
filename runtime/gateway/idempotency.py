"""`Idempotency-Key`: a request that is sent several times is one run.

The key is stored with its run's id before the run is admitted, and lives as long as the run's
record: it is in the run's shard, whose scripts give both the same lifetime whenever the run waits,
continues or ends. A caller that sends the key again, to this gateway or another, therefore joins
the run or reads its result. If a gateway dies between storing the key and admitting the run, the
next request with the key admits the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from loopline.bus import Bus
from loopline.runtime.client.run_ids import new_run_id
from loopline.runtime.gateway.errors import ApiError, invalid

HEADER = "idempotency-key"
MAX_KEY = 255


def digest_of(route: str, body: Mapping[str, Any]) -> str:
    """Return the digest of a request, independent of the order of its body's fields. It includes
    the `route`, since the same fields may mean different requests on different routes."""
    fields = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(route.encode() + b"\0" + fields).hexdigest()


def check_continued(key: str | None) -> None:
    """Check that a request for the rest of a stream has the stream's key: without it, the request
    starts a new run, whose first events nobody has seen. Raises `ApiError`."""
    if key is None:
        raise invalid(
            f"Last-Event-ID: only a request with its {HEADER} can be continued by sending it again;"
            " GET the answer's own URL with ?stream=true&starting_after=EVENT",
            code="missing_idempotency_key",
        )


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """The run that belongs to a key."""

    id: str
    digest: str
    """Digest of caller and key; the run is admitted with it."""


async def run_of_key(
    bus: Bus, caller: str, key: str, body_digest: str, delay: float = 0.0
) -> ClaimedRun:
    """Return the run that belongs to this key, with a new id if the caller uses the key for the
    first time. `delay`: seconds until the run starts. Raises `ApiError` 409 if the caller has used
    the key for another request.
    """
    if not key or len(key) > MAX_KEY or not key.isprintable():
        raise invalid(
            f"{HEADER}: 1 to {MAX_KEY} printable characters", code="invalid_idempotency_key"
        )
    name = hashlib.sha256(f"{caller}\0{key}".encode()).hexdigest()
    before = await bus.redis.get(bus.keys.earlier_idempotency(name))
    if before is None:
        shard = bus.keys.shard_of(name)
        run_id = new_run_id(bus.clock.now())
        while bus.keys.shard_of(run_id) != shard:
            run_id = new_run_id(bus.clock.now())
        before = await bus.redis.set(
            shard.idempotency(name),
            f"{run_id} {body_digest}",
            nx=True,
            get=True,
            px=int((delay + bus.settings.retention_seconds) * 1000),
        )
        if before is None:
            return ClaimedRun(run_id, name)
    first_run, _, first_digest = before.decode().partition(" ")
    if first_digest != body_digest:
        raise ApiError(
            409,
            f"this {HEADER} was used for another request: one key stands for one route, session and"
            " body",
            code="idempotency_key_reused",
        )
    return ClaimedRun(first_run, name)

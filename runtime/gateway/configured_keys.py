"""Keys from the configuration, `[gateway.keys.NAME]`. Their values are in environment variables,
like the secrets of containers."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

import structlog

from loopline.bus import Bus
from loopline.runtime.config.sections import GatewayKey
from loopline.runtime.gateway.api_keys import ApiKey, by_digest, digest

log = structlog.get_logger("loopline.runtime.gateway")

MIN_CHARS = 24
"""Minimum length of a key. A shorter key could be guessed, since attempts are not rate-limited."""
_MICRO = 1_000_000


async def register(bus: Bus, keys: Mapping[str, GatewayKey], environ: Mapping[str, str]) -> None:
    """Register these callers with the current configuration. A revoked key stays revoked. A key
    whose variable is missing or too short is logged and not accepted."""
    for name, configured in keys.items():
        key = environ.get(configured.env, "").strip()
        if len(key) < MIN_CHARS:
            what = f"has fewer than {MIN_CHARS} characters" if key else "is not set"
            log.error(
                "a key of gateway.keys is not served",
                caller=name,
                why=f"the environment variable {configured.env} {what}",
            )
            continue
        existing = await by_digest(bus, digest(key))
        if existing is not None and existing.revoked:
            continue
        record = record_of(name, key, configured, bus.clock.now() if existing is None else 0.0)
        if existing is not None:
            record = record.model_copy(update={"created": existing.created})
        if record != existing:
            body = record.model_dump_json()
            await bus.redis.hset(bus.keys.api_keys, digest(key), body)  # pyright: ignore


def record_of(name: str, key: str, configured: GatewayKey, created: float) -> ApiKey:
    """Return the bus's record of a configured key."""
    dollars = configured.dollars_per_day
    return ApiKey(
        id=digest(key)[:12],
        name=name,
        created=created,
        models=configured.models,
        tokens_per_day=configured.tokens_per_day,
        micro_dollars_per_day=None if dollars is None else max(1, round(dollars * _MICRO)),
        seconds_per_day=configured.seconds_per_day,
        tenant=configured.tenant,
        dashboard=configured.dashboard,
        approves=configured.approves,
        webhook_secret=webhook_secret_of(key),
    )


def webhook_secret_of(key: str) -> str:
    """Return the secret for signing the key's webhooks, which its owner can compute as well:
    `whsec_` and the base64 of SHA-256(`webhooks of ` + key)."""
    body = hashlib.sha256(f"webhooks of {key}".encode()).digest()
    return "whsec_" + base64.b64encode(body).decode()

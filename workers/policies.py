"""Keeps an engine's adapters as the policies on the bus say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from bus import Policy
from workers.engines.protocol import Engine, EngineError

log = structlog.get_logger("workers.policies")


@dataclass
class Served:
    """What became of one policy here."""

    seen: int = 0
    """The version in use by the last word from the bus that was acted on."""
    version: int = 0
    """That new requests get; 0 is the model without an adapter."""
    refused: int | None = None
    """A later version that could not be loaded."""
    reason: str = ""
    """Why."""


class PolicyFollower:
    """The policies of one pool, on one engine."""

    def __init__(self, pool: str, engine: Engine) -> None:
        self._pool = pool
        self._engine = engine
        self._served: dict[str, Served] = {}

    def adapter(self, policy: str) -> str | None:
        """The adapter that a request of this policy asks the engine for."""
        served = self._served.get(policy)
        if served is not None:
            return policy if served.version else None
        # Never published: the engine says so of an adapter, and of the pool there is the model.
        return None if policy == self._pool else policy

    def state(self) -> dict[str, dict[str, object]]:
        """For the worker's presence."""
        return {name: vars(served) for name, served in self._served.items()}

    async def apply(self, policies: Sequence[Policy]) -> None:
        """Load what is new. A version that cannot be loaded is refused, and the last one that
        could be goes on serving."""
        for policy in policies:
            if policy.pool == self._pool:
                served = self._served.setdefault(policy.name, Served())
                if policy.current != served.seen:
                    await self._change(policy, served)
                    served.seen = policy.current

    async def _change(self, policy: Policy, served: Served) -> None:
        served.refused, served.reason = None, ""
        for version in (policy.current, *reversed(policy.earlier)):
            if version == served.version:
                return
            try:
                await self._load(policy, version)
            except EngineError as error:
                if version == policy.current:
                    served.refused, served.reason = version, str(error)
                log.error(
                    "policy version refused", policy=policy.name, version=version, error=str(error)
                )
            else:
                served.version = version
                log.info("policy serves", policy=policy.name, version=version)
                return

    async def _load(self, policy: Policy, version: int) -> None:
        path = policy.path_of(version)
        if version == 0:
            await self._engine.unload_adapter(policy.name)
        elif path is None:
            raise EngineError(f"version {version} is no longer kept", kind="bad_request")
        else:
            await self._engine.load_adapter(policy.name, path, version)

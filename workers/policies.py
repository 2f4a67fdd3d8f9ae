"""Keeps an engine's adapters in sync with the policies on the bus."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import structlog

from loopline.bus import Policy
from loopline.bus.canaries import Canary, canary_adapter
from loopline.workers.engines.protocol import Engine, EngineError

log = structlog.get_logger("loopline.workers.policies")

MAX_IDLE = 31
"""Maximum number of policy updates to skip before the next attempt to load (about 15 minutes)."""


@dataclass
class ServedPolicy:
    """State of one policy on this engine: the serving version, and a refused one."""

    seen: int | None = None
    """Version in use in the last update that was handled; None before the first."""
    seen_published: float | None = None
    """Unix seconds at which that version was published. A bus that lost its data counts from 1
    again, so the same number can be a different version."""
    version: int | None = None
    """Version that new requests get; 0 is the model without an adapter, None means none yet."""
    published: float | None = None
    """Unix seconds at which that version was published."""
    refused: int | None = None
    """Later version that could not be loaded."""
    reason: str = ""
    """Why that version could not be loaded."""
    passing: bool = False
    """Whether the reason may pass, as a memory shortage does. Then the version is tried again at a
    later update; updates arrive at least every half minute."""
    failures: int = 0
    """Consecutive failed attempts."""
    idle: int = 0
    """Updates to skip until the next attempt."""


@dataclass
class ServedCanary:
    """State of a version on trial on this engine."""

    policy: str
    canary: Canary
    published: float | None
    """Unix seconds at which its version was published: see `ServedPolicy.seen_published`."""
    refused: str = ""
    """Why it could not be loaded; the version in use then answers in its place."""
    passing: bool = False
    """Whether the reason may pass: then the version is tried again at a later update."""

    @property
    def adapter(self) -> str | None:
        """The engine's name for the version; None for the model without an adapter."""
        version = self.canary.version
        return canary_adapter(self.policy, version) if version else None

    def answers(self, run_id: str, pin: int | None) -> bool:
        """Whether the trial answers this run's request; `pin` is the version that it requires."""
        if self.refused:
            return False
        if pin is not None:
            return pin == self.canary.version
        return self.canary.mode == "share" and self.canary.takes(self.policy, run_id)


class PolicyFollower:
    """Follows the policies of one pool, on one engine."""

    def __init__(
        self, pool: str, engine: Engine, base_until_published: Collection[str] = ()
    ) -> None:
        """`base_until_published`: adapters of the pool whose policies the plain model serves until
        a version of them is published."""
        self._pool = pool
        self._engine = engine
        self._begin_plain = {pool, *(f"{pool}/{name}" for name in base_until_published)}
        self._served: dict[str, ServedPolicy] = {}
        self._canaries: dict[str, ServedCanary] = {}

    def adapter(self, policy: str, version: int | None = None, run_id: str = "") -> str | None:
        """The adapter that the engine must use for a request of this policy and run; with a
        `version`, an adapter for exactly that version.

        Raises `OtherVersion` if another version serves, and EngineError `unknown_adapter` while
        none of the policy's versions could be loaded, since the plain model's answer would pass for
        the adapter's. A pool's own policy is served by the plain model until the first version that
        can be loaded. A policy that starts with the plain model is served by it until its first
        version is loaded or refused.
        """
        canary = self._canaries.get(policy)
        if canary is not None and canary.answers(run_id, version):
            return canary.adapter
        served_policy = self._served.get(policy)
        if served_policy is None:
            if policy in self._begin_plain:
                _require_version(policy, version, 0)
                return None
            # Never published: the engine reports the error.
            return policy
        if served_policy.version is None:
            raise _not_served_error(policy, served_policy)
        _require_version(policy, version, served_policy.version)
        return policy if served_policy.version else None

    def may_serve(self, policy: str, version: int) -> bool:
        """Whether this engine has not refused a version that is in use on the bus or on trial."""
        canary = self._canaries.get(policy)
        if canary is not None and canary.canary.version == version:
            return not canary.refused
        served_policy = self._served.get(policy)
        return served_policy is None or served_policy.refused != version

    def state(self) -> dict[str, dict[str, object]]:
        """State for the worker's presence and metrics; safe to call from any thread."""
        return {
            name: vars(served_policy) | self._canary_state(name)
            for name, served_policy in list(self._served.items())
        }

    def _canary_state(self, policy: str) -> dict[str, object]:
        canary = self._canaries.get(policy)
        if canary is None:
            return {}
        refused = {"canary_refused": canary.refused} if canary.refused else {}
        return {"canary": canary.canary.version, "canary_since": canary.canary.since, **refused}

    async def apply(self, policies: Sequence[Policy]) -> None:
        """Load new versions, and retry refused ones. A version that cannot be loaded is refused,
        and the last loaded one keeps serving."""
        for policy in policies:
            if policy.pool == self._pool:
                served_policy = self._served.setdefault(
                    policy.name, self._initial_policy(policy.name)
                )
                wanted = (policy.current, policy.published_at(policy.current))
                if wanted != (served_policy.seen, served_policy.seen_published):
                    (
                        served_policy.refused,
                        served_policy.reason,
                        served_policy.failures,
                        served_policy.idle,
                    ) = None, "", 0, 0
                elif not served_policy.passing:
                    continue
                elif served_policy.idle:
                    served_policy.idle -= 1
                    continue
                await self._change(policy, served_policy)
                served_policy.seen, served_policy.seen_published = wanted
        # After the version in use, so that a promoted version serves before its trial ends.
        of_pool = {policy.name: policy for policy in policies if policy.pool == self._pool}
        for name in {*of_pool, *self._canaries}:
            await self._change_canary(name, of_pool.get(name))

    async def _change_canary(self, name: str, policy: Policy | None) -> None:
        """Load a version on trial, and unload one whose trial is over."""
        canary = None if policy is None else policy.canary
        published = (
            None if policy is None or canary is None else policy.published_at(canary.version)
        )
        present = self._canaries.get(name)
        if present is not None:
            if (present.canary, present.published) == (canary, published) and not present.passing:
                return
            del self._canaries[name]
            if present.adapter is not None and not present.refused:
                await self._engine.unload_adapter(present.adapter)
        if policy is None or canary is None:
            return
        trial = ServedCanary(name, canary, published)
        path = policy.path_of(canary.version)
        try:
            if trial.adapter is not None:
                if path is None:
                    raise EngineError(
                        f"version {canary.version} is no longer kept", kind="bad_request"
                    )
                await self._engine.load_adapter(trial.adapter, path, canary.version)
        except Exception as error:
            expected = isinstance(error, EngineError)
            trial.refused = str(error) if expected else f"{type(error).__name__}: {error}"
            trial.passing = isinstance(error, EngineError) and error.retryable
            log.error(
                "canary refused", policy=name, version=canary.version, error=trial.refused,
                exc_info=not expected,
            )  # fmt: skip
        else:
            log.info("canary serves", policy=name, version=canary.version, share=canary.share)
        self._canaries[name] = trial

    def _initial_policy(self, policy: str) -> ServedPolicy:
        """The state of a policy before its first version."""
        return ServedPolicy(version=0 if policy in self._begin_plain else None)

    async def _change(self, policy: Policy, served_policy: ServedPolicy) -> None:
        for version in self._wanted_versions(policy):
            published = policy.published_at(version)
            serves = (version, published) == (served_policy.version, served_policy.published)
            try:
                if not serves:
                    await self._load(policy, version, served_policy)
            except Exception as error:  # one bad version must not end the worker
                expected = isinstance(error, EngineError)
                reason = str(error) if expected else f"{type(error).__name__}: {error}"
                if version == policy.current:
                    served_policy.refused, served_policy.reason = version, reason
                    served_policy.passing = isinstance(error, EngineError) and error.retryable
                    # Loading a whole model reads gigabytes: retry at growing intervals.
                    served_policy.idle = min(2**served_policy.failures - 1, MAX_IDLE)
                    served_policy.failures += 1
                log.error(
                    "policy version refused",
                    policy=policy.name,
                    version=version,
                    error=reason,
                    exc_info=not expected,
                )
            else:
                if version == policy.current:
                    served_policy.refused, served_policy.reason, served_policy.passing = (
                        None,
                        "",
                        False,
                    )
                    served_policy.failures = 0
                if not serves:
                    served_policy.version, served_policy.published = version, published
                    log.info("policy serves", policy=policy.name, version=version)
                return
        if served_policy.seen is None and policy.name != self._pool:
            # The plain model was not chosen: it only filled in until now.
            served_policy.version = None

    def _wanted_versions(self, policy: Policy) -> Iterator[int]:
        """The version in use, then its possible replacements, the most recently used first."""
        in_use = (*policy.earlier, policy.current)
        # A rollback may choose the plain model; that version 0 precedes an adapter's first version
        # is not such a choice.
        if in_use[:2] == (0, 1) and policy.name != self._pool:
            in_use = in_use[1:]
        return reversed(in_use)

    async def _load(self, policy: Policy, version: int, served_policy: ServedPolicy) -> None:
        path = policy.path_of(version)
        if version == 0:
            if served_policy.version:
                await self._engine.unload_adapter(policy.name)
        elif path is None:
            raise EngineError(f"version {version} is no longer kept", kind="bad_request")
        else:
            if version == served_policy.version:
                # A different version with the same number, which the engine would take for the
                # loaded one. Until it is loaded, requests may be retried.
                served_policy.version = served_policy.published = None
                await self._engine.unload_adapter(policy.name)
            await self._engine.load_adapter(policy.name, path, version)


class OtherVersion(EngineError):
    """A request demands one version of a policy, and another one serves it here."""

    def __init__(self, policy: str, wanted: int, serving: int, *, lags: bool = False) -> None:
        """`lags`: the wanted version is in use on the bus, and this worker is about to load it."""
        super().__init__(
            f"version {wanted} of policy {policy!r} is not served: version {serving} is"
            + (f" until version {wanted} is loaded" if lags else ""),
            kind="unknown_adapter",
            retryable=lags,
        )
        self.policy, self.wanted, self.serving = policy, wanted, serving

    def lagging(self) -> OtherVersion:
        return OtherVersion(self.policy, self.wanted, self.serving, lags=True)


def _require_version(policy: str, wanted: int | None, serving: int) -> None:
    if wanted is not None and wanted != serving:
        raise OtherVersion(policy, wanted, serving)


def _not_served_error(policy: str, served_policy: ServedPolicy) -> EngineError:
    if served_policy.refused is None:
        return EngineError(
            f"policy {policy!r}: its first version is still being loaded",
            kind="unknown_adapter",
            retryable=True,
        )
    return EngineError(
        f"policy {policy!r} has no version that could be loaded; version {served_policy.refused} "
        f"was refused: {served_policy.reason}. Publish one that can be loaded, or pin version 0, "
        "which is the model without an adapter",
        kind="unknown_adapter",
    )

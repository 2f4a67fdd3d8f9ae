"""Runs that ask for admission, and the keys and arguments of the script that admits them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from loopline.bus import scripts
from loopline.bus.budgets import Scope, scopes_json
from loopline.bus.commit import Join, Outgoing, check_wait_seconds
from loopline.bus.errors import DeadlineExceeded, MessageTooLarge
from loopline.bus.keys import MAX_RUN_SECONDS, Shard
from loopline.bus.settings import BusSettings
from loopline.bus.tenants import NO_TENANT, Tenant


@dataclass(frozen=True, slots=True)
class Admission:
    """A run that asks for admission, with the messages that start it."""

    run_id: str
    run: bytes
    """The run's record, JSON; opaque to the bus."""
    deadline: float
    """Unix seconds by the bus's clock, at most a day away."""
    messages: tuple[Outgoing, ...]
    tokens_limit: int = 0
    """Limit of the run's tokens; 0 means no limit."""
    micro_dollars_limit: int = 0
    notify: str = ""
    """Inbox key that is notified when the run ends."""
    journal: tuple[bytes, ...] = ()
    """Steps that a fork inherits, JSON each; they are not executed again."""
    account: str = ""
    """Account whose daily budget this run's calls are charged to."""
    scopes: tuple[Scope, ...] = ()
    """Further scopes of the run, whose budgets also apply to it."""
    tenant: Tenant = NO_TENANT
    """Tenant of the run, which decides when the run starts if working runs are limited."""
    announce: bool = False
    """Whether its end is to be announced (`loopline.bus.run_ends`)."""
    joins: tuple[Join, ...] = ()
    """Joins that the inherited steps left open; `branches` are the ones still to come."""
    delay: float = 0.0
    """Seconds until its messages are published; the run's time starts then."""
    idempotency: str = ""
    """Digest of the key by which the caller requests the same run again (`Shard.idempotency`)."""
    record: object = field(default=None, compare=False, repr=False)
    """The record that `run` was serialized from, for a step that starts in this process."""

    @property
    def is_limited(self) -> bool:
        """Whether the run has a limit of its own."""
        limits = (self.tokens_limit, self.micro_dollars_limit)
        return any(limits) or any(any(scope.limits.values) for scope in self.scopes)


@dataclass(frozen=True, slots=True)
class Gate:
    """A script around `admit.lua` that admits the run only under a further condition. Its keys and
    arguments precede those of `admit`; it returns what `admit` returns, or `taken`."""

    script: str
    keys: tuple[str, ...]
    args: tuple[scripts.Value, ...]


def script_call(
    admission: Admission, shard: Shard, settings: BusSettings, epoch: str, *, left: float
) -> tuple[list[bytes], list[str], list[scripts.Value]]:
    """Return the message bodies, and the keys and arguments of `admit.lua` without the bodies.
    `left`: seconds until the deadline. Raises `MessageTooLarge`, ValueError or
    `DeadlineExceeded`."""
    bodies = [outgoing.envelope.to_json() for outgoing in admission.messages]
    joins = [(join, join.continuation.envelope.to_json()) for join in admission.joins]
    for body in [admission.run, *bodies, *admission.journal, *(after for _, after in joins)]:
        if len(body) > settings.max_message_bytes:
            raise MessageTooLarge(
                f"run {admission.run_id}: {len(body)} bytes; the limit is "
                f"{settings.max_message_bytes} (max_message_bytes)"
            )
    if left > MAX_RUN_SECONDS + 60:
        raise ValueError("a run's deadline must be at most one day away")
    if left + settings.retention_seconds <= 0:
        # The run's key would expire before anyone could end the run.
        raise DeadlineExceeded(f"run {admission.run_id}: its deadline is long past")
    keys = [
        shard.run(admission.run_id),
        shard.active,
        shard.trajectories,
        shard.history,
        shard.journal(admission.run_id),
        *(shard.work(join.continuation.stream) for join, _ in joins),
        *(shard.work(outgoing.stream) for outgoing in admission.messages),
    ]
    args: list[scripts.Value] = [
        admission.run_id,
        admission.run,
        int(admission.deadline * 1000),
        settings.max_runs,
        settings.max_unrecorded,
        int(settings.retention_seconds * 1000),
        admission.tokens_limit,
        admission.micro_dollars_limit,
        admission.notify,
        int(settings.history),
        len(admission.journal),
        len(joins),
        epoch,
        admission.account,
        int(admission.announce),
        scopes_json(admission.scopes, settings.shards),
        int(admission.is_limited),
        max(1, settings.max_working // settings.shards) if settings.max_working else 0,
        *admission.tenant.script_values(settings.shards),
        math.ceil(check_wait_seconds(admission.delay) * 1000) if admission.delay else 0,
        settings.max_queued,
        admission.idempotency,
        *admission.journal,
        *(part for join, after in joins for part in (join.id, join.branches, after)),
    ]
    return bodies, keys, args

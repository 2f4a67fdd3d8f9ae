"""Signals and approvals for waiting runs."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue, ValidationError

from loopline.agents.approvals import ApprovalRequest
from loopline.bus import Bus, MessageTooLarge, OpenWait, waits
from loopline.bus.keys import MAX_WAIT_SECONDS
from loopline.bus.waits import Decided, SignalSent, WaitingRun
from loopline.runtime.client.run_records import RunUnknown, run_of
from loopline.runtime.errors import InputError, UserError

MAX_REASON_CHARS = 1_000
MAX_BY_CHARS = 128


class SignalRefused(UserError):
    """The run doesn't accept the signal now."""


class ApprovalUnknown(UserError):
    """No request with this id waits for approval."""


class ApprovalUnreadable(UserError):
    """The request that waits for approval was written by another program or version."""


class ApprovalConflict(UserError):
    """The request was decided before, or has changed since the caller read it."""


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A request that a person can approve."""

    waiting: WaitingRun
    request: ApprovalRequest

    @property
    def id(self) -> str:
        """Id made of the run and the step that waits."""
        return f"{self.waiting.run_id}:{self.waiting.wait.guard}"

    def as_json(self) -> dict[str, JsonValue]:
        wait = self.waiting.wait
        return {
            "object": "approval",
            "id": self.id,
            "run": self.waiting.run_id,
            "kind": self.request.kind,
            "name": self.request.name,
            "agent": self.request.agent,
            "arguments": self.request.arguments,
            "digest": self.request.digest,
            "since": wait.since,
            "expires": wait.expires,
        }


@dataclass(frozen=True, slots=True)
class Approvals:
    """Requests that wait for approval, oldest first."""

    pending: list[PendingApproval]
    unreadable: list[str]
    """Reasons why further requests can't be read, each with its id."""


def pending_approval(run_id: str, wait: OpenWait) -> PendingApproval:
    """Build a pending approval from a wait of the kind `approval`. Raises `ApprovalUnreadable`."""
    request = _request_of(wait)
    if request is None:
        raise ApprovalUnreadable(
            f"the request {run_id}:{wait.guard}, which waits for approval, can't be read: another"
            " program wrote it, or a newer one",
            hint="decide on it with the version that wrote it, or cancel its run.",
        )
    return PendingApproval(WaitingRun(run_id, wait), request)


def readable_approvals(run_id: str, open_waits: Sequence[OpenWait]) -> list[PendingApproval]:
    """Return the waits of a run that a person can decide on."""
    approvals: list[PendingApproval] = []
    for wait in open_waits:
        if wait.kind == "approval":
            with suppress(ApprovalUnreadable):
                approvals.append(pending_approval(run_id, wait))
    return approvals


def _request_of(wait: OpenWait) -> ApprovalRequest | None:
    """Return the request that waits; None if it can't be read."""
    try:
        return ApprovalRequest.model_validate_json(wait.note)
    except ValidationError:
        return None


class WaitingCalls:
    """The part of a client that handles waiting runs."""

    bus: Bus

    async def signal(
        self,
        run_id: str,
        name: str,
        value: JsonValue = None,
        *,
        signal_id: str | None = None,
        by: str = "",
    ) -> SignalSent:
        """Send a run a signal, which ends the run's wait for it or is kept for a later wait.

        A caller that may be killed chooses `signal_id`: a signal that is sent again counts once.
        Raises `InputError` for an invalid name, id or value, `RunUnknown`, and `SignalRefused` for
        a run that has ended or has received the maximum number of signals.
        """
        try:
            body = json.dumps(value, allow_nan=False).encode()
            sent = await waits.send_signal(
                self.bus, run_id, name, body, signal_id or str(uuid.uuid4()), by[:MAX_BY_CHARS]
            )
        except (ValueError, TypeError, RecursionError, MessageTooLarge) as error:
            raise InputError(f"signal {name[:64]!r}: {error}") from error
        match sent:
            case SignalSent.MISSING:
                raise RunUnknown(f"the bus has no run {run_id[:64]}")
            case SignalSent.ENDED:
                raise SignalRefused(f"run {run_id} has ended: it takes no signals")
            case SignalSent.FULL:
                raise SignalRefused(
                    f"run {run_id} has {waits.MAX_KEPT} signals that it has not waited for yet"
                )
            case SignalSent.MANY:
                raise SignalRefused(
                    f"run {run_id} has had {waits.MAX_SIGNALS} signals, which is the limit"
                )
            case _:
                return sent

    async def approvals(self, account: str | None = None) -> list[PendingApproval]:
        """Return the readable requests that wait for approval, oldest first, for one account's runs
        or for all runs."""
        return (await self.all_approvals(account)).pending

    async def all_approvals(self, account: str | None = None) -> Approvals:
        """Return the pending requests, and which ones can't be read."""
        pending: list[PendingApproval] = []
        unreadable: list[str] = []
        async for waiting in waits.waiting_runs(self.bus, "approval"):
            if account is not None and await self._account_of(waiting.run_id) != account:
                continue
            try:
                pending.append(pending_approval(waiting.run_id, waiting.wait))
            except ApprovalUnreadable as error:
                unreadable.append(str(error))
        pending.sort(key=lambda approval: approval.waiting.wait.since)
        return Approvals(pending, unreadable)

    async def _account_of(self, run_id: str) -> str | None:
        """Return the account of a run; None if the run is gone, or can't be read."""
        try:
            return run_of(await self.bus.run_state(run_id)).account
        except UserError:
            return None

    async def approval(self, approval_id: str) -> PendingApproval:
        """Return one of the pending requests. Raises `ApprovalUnknown`."""
        run_id, _, guard = approval_id.partition(":")
        state = await self.bus.run_state(run_id)
        for wait in state.waits:
            if wait.kind == "approval" and wait.guard == guard:
                return pending_approval(run_id, wait)
        raise ApprovalUnknown(
            f"no request {approval_id[:80]!r} waits for approval",
            hint="`runtime approvals ls` lists those that do.",
        )

    async def decide(
        self,
        approval: PendingApproval,
        decision: Literal["approved", "denied"],
        *,
        by: str,
        reason: str = "",
    ) -> None:
        """Approve or deny exactly this request. Raises `ApprovalConflict` if it was already decided
        or the step now makes another request, and `ApprovalUnknown` if it no longer waits."""
        body = {
            "decision": decision,
            "digest": approval.request.digest,
            "at": round(self.bus.clock.now(), 3),
            "by": by[:MAX_BY_CHARS],
            "reason": reason[:MAX_REASON_CHARS],
        }
        decided = await waits.decide(
            self.bus, approval.waiting, approval.request.digest, json.dumps(body).encode()
        )
        match decided:
            case Decided.OK:
                return
            case Decided.DECIDED:
                raise ApprovalConflict(f"{approval.id} has already been decided")
            case Decided.CHANGED:
                raise ApprovalConflict(
                    f"{approval.id} now waits with other arguments: review them first"
                )
            case Decided.MISSING:
                raise ApprovalUnknown(f"{approval.id} no longer waits for approval")


_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def parse_delay(text: str, option: str) -> float:
    """Return the seconds of `90s`, `30m`, `2h` or `3d`. Raises `InputError`."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds <= MAX_WAIT_SECONDS:
        raise InputError(
            f"{option}: {text[:40]!r} is not a duration of at most a year",
            hint="for example 90s, 2h or 3d",
        )
    return seconds


def describe_waits(open_waits: Sequence[OpenWait]) -> list[str]:
    """Describe in words what a run waits for."""
    return [f"{_subject(wait)} until {_utc(wait.expires)}" for wait in open_waits]


def _subject(wait: OpenWait) -> str:
    match wait.kind:
        case "signal":
            return f"the signal {wait.name}"
        case "approval" | "effect":
            request = _request_of(wait)
            name = "something that this version can't read" if request is None else request.name
            if wait.kind == "approval":
                return f"approval of {name}"
            return f"a person's decision on the outcome of a call of {name}"
        case _:
            return "its start time,"


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def waits_json(open_waits: Sequence[OpenWait]) -> list[dict[str, JsonValue]]:
    """Return the waits in machine-readable form."""
    return [
        {"kind": wait.kind, "name": wait.name, "since": wait.since, "expires": wait.expires}
        for wait in open_waits
    ]

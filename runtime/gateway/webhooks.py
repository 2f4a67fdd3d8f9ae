"""Webhooks: notices that a run has ended or waits for approval, sent to the caller's URL at least
once each.

Messages are signed by the Standard Webhooks scheme with a secret of the caller's key. A message's
id is derived from the run's, so that a receiver recognizes a second delivery. The bus stores which
messages are due (`bus/run_ends.py`), so a gateway that is killed while it sends loses none.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2
import structlog
from standardwebhooks import Webhook

from loopline.bus import Bus, RunState, run_ends
from loopline.bus.connection import OUTAGE
from loopline.runtime.client.run_records import run_of, trajectory_of
from loopline.runtime.client.waiting import pending_approval
from loopline.runtime.config.sections import GatewaySettings
from loopline.runtime.gateway import api_keys, public_addresses
from loopline.runtime.gateway.api_keys import ApiKey
from loopline.runtime.gateway.errors import ApiError, invalid
from loopline.runtime.gateway.runs_request import ended_body
from loopline.workers.engines.openai.proxy import ProxyUnusable
from loopline.workers.json_bytes import json_bytes

log = structlog.get_logger("loopline.runtime.gateway")

LOOK_SECONDS = 0.5
SEND_SECONDS = 15.0
CLAIM_SECONDS = 60.0
"""Duration of a claim in seconds: longer than all deliveries of one round take."""
AT_ONCE = 32
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3_600.0
"""Bounds of the seconds until a failed delivery is retried, which double with each attempt."""


async def check_url(url: str, settings: GatewaySettings) -> list[str]:
    """Check a URL, and return the addresses to which a request may be sent. Raises `ApiError` for a
    URL that callers must not reach, on this machine or in a private network, unless the callers are
    on this machine themselves."""
    try:
        parsed = httpx2.URL(url)
        host = parsed.raw_host.decode("ascii")
    except httpx2.InvalidURL as error:
        raise invalid(f"webhook: {error}", "webhook") from error
    if not host:
        raise invalid("webhook: the URL has no host", "webhook")
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise invalid(f"webhook: there is no port {parsed.port}", "webhook")
    if _is_local(settings.host):
        return [host]
    try:
        addresses = await public_addresses.resolve(host)
    except (OSError, UnicodeError) as error:
        raise invalid(f"webhook: {host[:200]!r} can't be resolved", "webhook") from error
    if not all(map(public_addresses.is_public, addresses)):
        raise ApiError(
            403,
            f"webhook: {host[:200]!r} is an address of a private network",
            code="webhook_not_allowed",
            param="webhook",
        )
    return addresses


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class WebhookSender:
    """Sends due messages until it is cancelled."""

    def __init__(
        self, bus: Bus, settings: GatewaySettings, priced: Collection[str] = frozenset()
    ) -> None:
        """`priced`: the pools that have a price."""
        self._bus = bus
        self._settings = settings
        self._priced = frozenset(priced)
        self._verify = httpx2.create_ssl_context()  # loading certificates takes a while

    async def run(self) -> None:
        while True:
            try:
                ends = await run_ends.claim(self._bus, seconds=CLAIM_SECONDS, count=AT_ONCE)
                sent = await asyncio.gather(*map(self._send, ends), return_exceptions=True)
                for failure in filter(None, sent):
                    raise failure
            except OUTAGE as error:
                log.debug("ended runs not read", error=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _send(self, end: run_ends.RunEnd) -> None:
        state = await self._bus.run_state(end.run_id)
        try:
            await self._deliver(end, state)
        except OUTAGE:
            raise
        except Exception as error:  # noqa: BLE001
            # Perhaps another version wrote it: a gateway of that version may send it. In any case,
            # this gateway has other messages to send.
            await self._try_later(
                end, state.ended or state.admitted, f"{type(error).__name__}: {error}"
            )

    async def _deliver(self, end: run_ends.RunEnd, state: RunState) -> None:
        if state.active != bool(end.guard):
            # A replay has woken the run, and its next end is added again; or it no longer waits.
            await run_ends.settle(self._bus, end)
            return
        key = None
        if state.state != "missing":
            run = run_of(state)
            key = await api_keys.by_id(self._bus, run.account)
        if state.state == "missing" or key is None or run_of(state).webhook is None:
            log.error("webhook given up: its run or its key is gone", run_id=end.run_id)
            await run_ends.settle(self._bus, end)
            return
        message = _approval_message(state, end) if end.guard else _end_message(state, self._priced)
        if message is None:
            await run_ends.settle(self._bus, end)
            return
        trouble = await self._post(key, run_of(state).webhook or "", message)
        if not trouble:
            await run_ends.settle(self._bus, end)
            return
        await self._try_later(end, message.since, trouble)

    async def _try_later(self, end: run_ends.RunEnd, since: float, trouble: str) -> None:
        passed = max(0.0, self._bus.clock.now() - since)
        pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, passed))
        log.warning("webhook not delivered", run_id=end.run_id, why=trouble, again_in=round(pause))
        await run_ends.postpone(self._bus, end, pause)

    async def _post(self, key: ApiKey, url: str, message: _Message) -> str:
        """Post a message and return the error; empty if it was delivered."""
        moment = datetime.now(UTC)
        body = json_bytes(
            {
                "type": message.type,
                "timestamp": moment.isoformat().replace("+00:00", "Z"),
                "data": message.data,
            }
        )
        headers = {
            "content-type": "application/json",
            "user-agent": "loopline",
            "webhook-id": message.id,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": Webhook(key.webhook_secret).sign(
                message.id, moment, body.decode()
            ),
        }
        try:
            addresses = await check_url(url, self._settings)
            async with public_addresses.client(url, self._verify) as client:
                answer = await public_addresses.post(
                    client, url, addresses, body, headers, SEND_SECONDS
                )
            return "" if answer.is_success else f"status {answer.status_code}"
        except (
            httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ApiError, OSError, ProxyUnusable
        ) as error:  # fmt: skip
            return str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class _Message:
    id: str
    """Id of the message, the same for every delivery."""
    type: str
    data: dict[str, Any]
    since: float
    """Time of the event in Unix seconds."""


def _end_message(state: RunState, priced: Collection[str]) -> _Message:
    trajectory = trajectory_of(state)
    return _Message(state.run_id, "run.ended", ended_body(trajectory, priced), trajectory.ended)


def _approval_message(state: RunState, end: run_ends.RunEnd) -> _Message | None:
    """Return the message about an approval; None if the approval is no longer pending."""
    for wait in state.waits:
        if wait.kind == "approval" and wait.guard == end.guard:
            approval = pending_approval(state.run_id, wait)
            name = f"{approval.id}:{approval.request.digest[:16]}"
            return _Message(name, "approval.needed", approval.as_json(), wait.since)
    return None

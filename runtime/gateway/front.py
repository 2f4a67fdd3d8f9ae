"""The gateway's process: an HTTP server, the steps of the role `chat` for its requests, and the
endpoint calls of these steps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import structlog
import uvicorn

from loopline.bus import Bus, Consumer, Inbox, retry_during_outage
from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.gateway import configured_keys
from loopline.runtime.gateway.api_keys import own_key
from loopline.runtime.gateway.app import gateway_app
from loopline.runtime.gateway.connections import bounded_protocol, connection_limit
from loopline.runtime.gateway.service import Service
from loopline.runtime.gateway.webhooks import WebhookSender
from loopline.runtime.supervise.listener import GATEWAY, Listener
from loopline.workers.tracing.outbox import SpanOutbox, flushing

log = structlog.get_logger("loopline.runtime.gateway")

DRAIN_SHARE = 0.8
"""Share of `supervisor.drain_seconds` for answers in progress; the rest is for the steps."""


class GatewayFront:
    """`loopline.workers.process.Front` of the gateway."""

    kind = GATEWAY

    def __init__(self, settings: Settings, state: StateDirectory) -> None:
        self._settings = settings
        self._state = state
        self._listener = Listener.inherited(settings.gateway)

    def server(self, bus: Bus, inbox: Inbox, consumers: Sequence[Consumer]) -> GatewayServer:
        """See `loopline.workers.process.Front.server`."""
        settings = self._settings
        client = Client.on(bus, inbox, settings)
        return GatewayServer(Service(client, settings), self._state, consumers, self._listener)

    def details(self) -> dict[str, Any]:
        return {"url": self._listener.url}


class GatewayServer:
    """All parts of the gateway. While the gateway drains, it still executes the steps of requests
    in progress, and these steps still get their answers."""

    def __init__(
        self,
        service: Service,
        state: StateDirectory,
        consumers: Sequence[Consumer],
        listener: Listener,
    ) -> None:
        self._service = service
        self._state = state
        self._consumers = consumers
        self._listener = listener
        settings = service.settings
        traces = settings.tracing.endpoint is not None
        self._outbox = SpanOutbox(service.client.bus, settings.tracing) if traces else None
        # A consumer's name is its worker's name with a random part.
        worker = consumers[0].name.rpartition("-")[0] if consumers else ""
        self._http = _Server(
            uvicorn.Config(
                gateway_app(service, state, self._outbox, worker),
                http=bounded_protocol(settings.gateway.header_seconds),
                ws="websockets-sansio",
                ws_max_size=settings.gateway.max_body_bytes,
                # A few compressed bytes could expand to the whole limit.
                ws_per_message_deflate=False,
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                limit_concurrency=connection_limit(settings.gateway.max_connections),
                timeout_keep_alive=int(settings.gateway.keepalive_seconds),
                timeout_graceful_shutdown=int(settings.supervisor.drain_seconds * DRAIN_SHARE) or 1,
                backlog=2048,
            )
        )

    async def run(self) -> None:
        async with nullcontext() if self._outbox is None else flushing(self._outbox):
            await self._run()

    async def _run(self) -> None:
        bus, gateway = self._service.client.bus, self._service.settings.gateway
        await own_key(bus, self._state)
        await retry_during_outage(
            "configured keys", lambda: configured_keys.register(bus, gateway.keys, os.environ)
        )
        serving = [
            asyncio.create_task(consumer.run(), name=", ".join(consumer.streams))
            for consumer in self._consumers
        ]
        http = asyncio.create_task(self._http.serve([self._listener.socket]), name="http")
        settings = self._service.settings
        sender = WebhookSender(bus, settings.gateway, settings.priced_pools)
        sending = bus.background.start(sender.run(), name="webhooks")
        try:
            await asyncio.wait({*serving, http}, return_when=asyncio.FIRST_COMPLETED)
            self._http.should_exit = True
            await http
            for consumer, task in zip(self._consumers, serving, strict=True):
                consumer.drain()
                await task
        finally:
            await bus.background.stop([sending])
            for task in (*serving, http):
                task.cancel()
            await asyncio.gather(*serving, http, return_exceptions=True)

    def drain(self) -> None:
        self._http.should_exit = True


class _Server(uvicorn.Server):
    """A server that installs no signal handlers: the worker handles signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

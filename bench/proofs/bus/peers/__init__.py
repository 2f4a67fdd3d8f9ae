"""The compared systems, each as a producer and a consumer of the same message."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, cast

import orjson

STREAM = "bench"
MESSAGE_BYTES = 256
PEERS = {
    "raw": "raw redis-py, pipelined batches: the client's limit, without guarantees",
    "faststream": "FastStream, a handler call and an acknowledgement per message",
    "loopline": "ours: typed envelope, lease, atomic commit, journal append, hand-off",
}
"""Peers in the order of measurement, with a description."""

OnMessage = Callable[[int], None]
"""Called at each handler's start with the message's time stamp (`stamp`)."""


class Producer(Protocol):
    """Puts messages into the peer's stream."""

    async def open(self, url: str) -> None: ...

    async def send_many(self, count: int) -> None:
        """Send `count` messages as fast as the peer's interface allows."""
        ...

    async def send_one(self) -> None:
        """Send one message now, with its time stamp."""
        ...

    async def close(self) -> None: ...


class Receiver(Protocol):
    """Handles messages of the peer's stream with a handler that does nothing."""

    async def open(self, url: str) -> None:
        """Prepare everything so that messages can be received."""
        ...

    async def consume(self, count: int, on_message: OnMessage) -> None:
        """Handle `count` messages; return when the last one is settled."""
        ...

    async def close(self) -> None: ...


def producer_of(peer: str) -> Producer:
    return cast(Producer, import_module(f"loopline.bench.proofs.bus.peers.{peer}").Sender())


def receiver_of(peer: str) -> Receiver:
    return cast(Receiver, import_module(f"loopline.bench.proofs.bus.peers.{peer}").Handler())


def stamp() -> int:
    """Return nanoseconds of the clock that all processes of this machine share."""
    return time.monotonic_ns()


_PADDING = "x" * (MESSAGE_BYTES - len(orjson.dumps({"sent": 10**18, "text": ""})))


def message_fields() -> dict[str, Any]:
    """Return the message: 256 bytes as JSON (a few fewer while the machine's clock is young)."""
    return {"sent": stamp(), "text": _PADDING}


def message_body() -> bytes:
    return orjson.dumps(message_fields())

"""Clients of an attacked gateway: they send a request, lose their connection, and return with the
same `Idempotency-Key` and the id of the last event that they read. They record only bytes."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from loopline.runtime.gateway.chat_stream import place_of

SILENCE_SECONDS = 4.0
"""Seconds without a byte of a stream after which a client considers its gateway dead."""
ANSWER_SECONDS = 10.0
"""The same for a plain call, whose answer arrives at once or not at all."""
CUT_SHARE = 0.2
"""Share of the connections that the client itself drops somewhere in the middle."""
PAUSE_SECONDS = (0.05, 0.5)
_TEMPORARY = frozenset({429, 502, 503, 504})


@dataclass
class Receipt:
    """Everything that one caller received for one key."""

    key: str
    prompt: str
    seed: int
    model: str
    stream: bool
    text: str = ""
    ids: list[str] = field(default_factory=list[str])
    """Ids of the events, in order of arrival over all connections."""
    runs: set[str] = field(default_factory=set[str])
    """Ids of the completions in its answers."""
    connections: int = 0
    complete: bool = False
    refusal: str = ""
    """Status or error that a retry cannot fix."""

    @property
    def body(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt}],
            "temperature": 0,  # the endpoint's texts are compared with the expected ones
            "seed": self.seed,
            "stream": self.stream,
        }

    @property
    def repeated(self) -> int:
        """Events that arrived after one with the same or a later id."""
        places = [place_of(event_id) for event_id in self.ids]
        return sum(after <= before for before, after in itertools.pairwise(places))


class Callers:
    """All clients of one attack, in one process."""

    def __init__(self, addresses: Sequence[str], key: str, seed: int, limit: int) -> None:
        """Create clients. `addresses`: base URLs of the gateways; `limit`: number of calls in
        progress at the same time."""
        self._addresses = addresses
        self._key = key
        self._random = random.Random(seed)
        self._slots = asyncio.Semaphore(limit)
        self.done = 0

    async def ask_all(self, receipts: Sequence[Receipt], seconds: float) -> None:
        """Fill in all receipts; those that are incomplete after this time stay incomplete."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        until = time.monotonic() + seconds
        async with (
            httpx.AsyncClient(limits=limits, trust_env=False) as client,
            asyncio.TaskGroup() as group,
        ):
            for receipt in receipts:
                group.create_task(self._ask(client, receipt, until))

    async def _ask(self, client: httpx.AsyncClient, receipt: Receipt, until: float) -> None:
        async with self._slots:
            while not (receipt.complete or receipt.refusal) and time.monotonic() < until:
                receipt.connections += 1
                with suppress(httpx.TransportError):
                    await (self._read if receipt.stream else self._wait)(client, receipt)
                if not receipt.complete:
                    await asyncio.sleep(self._random.uniform(*PAUSE_SECONDS))
            self.done += 1

    def _headers(self, receipt: Receipt) -> dict[str, str]:
        headers = {
            "authorization": f"Bearer {self._key}",
            "idempotency-key": receipt.key,
            "content-type": "application/json",
        }
        if receipt.ids:
            headers["last-event-id"] = receipt.ids[-1]
        return headers

    def _url(self) -> str:
        return f"{self._random.choice(self._addresses)}/chat/completions"

    async def _wait(self, client: httpx.AsyncClient, receipt: Receipt) -> None:
        impatient = self._random.random() < CUT_SHARE
        response = await client.post(
            self._url(),
            content=orjson.dumps(receipt.body),
            headers=self._headers(receipt),
            timeout=self._random.uniform(0.05, 1.0) if impatient else ANSWER_SECONDS,
        )
        if response.status_code != 200:
            _refused(receipt, response.status_code, response.content)
            return
        completion = orjson.loads(response.content)
        receipt.runs.add(completion["id"])
        receipt.text = completion["choices"][0]["message"]["content"]
        receipt.complete = True

    async def _read(self, client: httpx.AsyncClient, receipt: Receipt) -> None:
        remaining = self._random.randint(1, 8) if self._random.random() < CUT_SHARE else -1
        async with client.stream(
            "POST",
            self._url(),
            content=orjson.dumps(receipt.body),
            headers=self._headers(receipt),
            timeout=SILENCE_SECONDS,
        ) as response:
            if response.status_code != 200:
                _refused(receipt, response.status_code, await response.aread())
                return
            async with aclosing(_events(response)) as events:
                async for event_id, data in events:
                    self._take(receipt, event_id, data)
                    remaining -= 1
                    if receipt.complete or receipt.refusal or not remaining:
                        return

    @staticmethod
    def _take(receipt: Receipt, event_id: str, data: bytes) -> None:
        if not event_id:
            _refused(receipt, 0, data)
            return
        receipt.ids.append(event_id)
        if data == b"[DONE]":
            receipt.complete = True
            return
        chunk = orjson.loads(data)
        receipt.runs.add(chunk["id"])
        receipt.text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


async def _events(response: httpx.Response) -> AsyncGenerator[tuple[str, bytes]]:
    """Yield (id, data) of each complete event; the id is empty for an event without one."""
    buffer = b""
    async for part in response.aiter_bytes():
        *events, buffer = (buffer + part).split(b"\n\n")
        for event in events:
            fields = dict[bytes, bytes]()
            for line in event.split(b"\n"):
                name, _, value = line.partition(b": ")
                fields[name] = value
            if b"data" in fields:
                yield fields.get(b"id", b"").decode(), fields[b"data"]


def _refused(receipt: Receipt, status: int, body: bytes) -> None:
    """Record an error that the caller can't change. An event without an id is an error that arrived
    after the headers: its code determines whether to retry."""
    try:
        code = orjson.loads(body)["error"]["code"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        code = None
    if status in _TEMPORARY or (status == 0 and code == "service_unavailable"):
        return
    receipt.refusal = f"{status or 'in the stream'}: {body[:300].decode(errors='replace')}"

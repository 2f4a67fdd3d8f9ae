"""Publish generated text to followers: appended at the right offset or not at all.

A run's log outlives the client that reads it and the worker that writes it. A worker that takes
over a request reads its predecessor's published text and continues from there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loopline.bus import scripts
from loopline.bus.connection import retry_during_outage
from loopline.bus.delivery import REQUEST_LIFE_MS, Delivery
from loopline.bus.errors import BusError, LeaseLost


class Weights(NamedTuple):
    """The weights that sampled a text's ids. Other weights give the ids other log-probabilities."""

    base: str
    adapter: str | None
    version: int
    """Version of the adapter; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class FollowerPosition:
    """Ids and text that followers of one request have received so far."""

    ids: tuple[int, ...]
    text: str
    weights: Weights | None
    """Weights that sampled the ids; None if the writer did not specify them, or nothing is
    published."""


class TokenWriter:
    """Publishes the tokens of one request, in order, from one worker at a time."""

    def __init__(self, delivery: Delivery, agent: str) -> None:
        self._bus = delivery.bus
        self._agent = agent
        self._call = delivery.envelope.reply_key
        self._guard = delivery.envelope.guard
        self._delivery = delivery
        shard, run_id = delivery.shard, delivery.envelope.run_id
        self._keys = [
            shard.log(run_id),
            shard.request(self._call),
            shard.run(run_id),
            delivery.lease.stream,
        ]
        self._offset = 0

    async def published(self) -> FollowerPosition:
        """What an earlier worker has published for this request; the writer continues after it."""
        ids: list[int] = []
        text = ""
        weights: Weights | None = None
        if self._delivery.state is not None:  # this process asked it a moment ago
            return FollowerPosition((), "", None)
        entries = await retry_during_outage(
            "token log", lambda: self._bus.redis.xrange(self._keys[0])
        )
        for _, fields in entries:
            if fields.get(b"call") != self._call.encode():
                continue
            if fields[b"type"] == b"restart":
                ids, text = [], ""
            ids += json.loads(fields[b"ids"])
            text += fields[b"text"].decode()
            # An older writer's entry has no weights.
            drawn_by = json.loads(fields.get(b"weights", b"null"))
            weights = None if drawn_by is None else Weights(*drawn_by)
        self._offset = len(ids)
        return FollowerPosition(tuple(ids), text, weights)

    async def append(
        self,
        text: str,
        ids: Sequence[int],
        *,
        weights: Weights | None = None,
        restart: bool = False,
    ) -> None:
        """Publish a piece. Engines without ids pass one made-up id per piece, to count offsets.

        `weights` are those that sampled the ids, if a successor may continue from them. `restart`
        revokes the published text: followers start this call's text again. Raises `LeaseLost` if
        another worker holds the request now.
        """
        if text and not ids:
            raise ValueError("a piece of text needs at least one id: offsets count ids")
        await self._delivery.held()
        at, lease = 0 if restart else self._offset, self._delivery.lease
        fields = {
            "type": "restart" if restart else "tokens",
            "call": self._call,
            "agent": self._agent,
            "offset": str(at),
            "text": text,
            "ids": json.dumps(list(ids)),
            "weights": json.dumps(weights),
        }
        local = self._bus.logs.local(self._keys[0])
        if local is not None:
            local.is_written = True
        args: list[scripts.Value] = [
            lease.group,
            lease.entry,
            lease.consumer,
            lease.count,
            self._call,
            at,
            text,
            fields["ids"],
            len(ids),
            self._agent,
            int(restart),
            REQUEST_LIFE_MS,
            fields["weights"],
            self._guard,
        ]
        result = await retry_during_outage(
            "token log",
            lambda: scripts.call(self._bus.redis, "append_tokens", self._keys, args),
        )
        if result[0] == b"stale":
            raise LeaseLost(f"request {self._call}: taken over, another writes its tokens")
        if result[0] == b"gap" and int(result[1]) != at + len(ids):
            # An offset just after our piece means that it arrived and only the answer was lost.
            raise BusError(f"request {self._call}: log is at {int(result[1])}, writer at {at}")
        self._offset = at + len(ids)
        if result[0] == b"ok" and local is not None:
            local.deliver((result[1].decode(), fields), int(result[2]))

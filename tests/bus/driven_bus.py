"""A bus on a real server next to its model, and the shared parts of the state machine's moves."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine, initialize

from loopline.bus import Bus, BusSettings, Delivery, scripts
from loopline.bus.envelope import Envelope
from loopline.bus.keys import GROUP
from loopline.bus.lease import Lease
from tests.bus.bus_model import STREAMS, Message, Run, Token
from tests.bus.payloads import Note

T = TypeVar("T")


class DrivenBus(RuleBasedStateMachine):
    """A base without moves."""

    url = ""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.bus = Bus(
            BusSettings(
                redis_url=self.url, prefix=f"m{uuid.uuid4().hex[:8]}", history=True, max_runs=4
            )
        )
        self.bus.registry.register("note", Note)
        self.shard = self.bus.keys.shard(0)
        self.model: list[Run] = []
        self.messages: list[Message] = []
        self.tokens: list[Token] = []
        self.queues: dict[str, list[Message]] = {name: [] for name in STREAMS}
        self.published: list[tuple[str, int, str, list[str]]] = []
        for name in STREAMS:
            self.do(scripts.call(self.bus.redis, "group", [self.shard.work(name)], [GROUP]))

    def do(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.runner.run(wait())

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return

        async def clear() -> None:
            keys = [key async for key in self.bus.redis.scan_iter(f"{{{self.bus.keys.prefix}:*")]
            if keys:
                await self.bus.redis.delete(*keys)
            await self.bus.close()

        self.do(clear())
        self.runner.close()

    # Messages of the model and the wire.

    def publish(self, message: Message) -> None:
        message.place, message.holder, message.begun = "queued", None, frozenset({1})
        self.queues[message.stream].append(message)

    def token(self, message: Message, worker: str, entry: str, count: int, body: bytes) -> Token:
        envelope = Envelope.from_json(body)
        fields = json.loads(body)
        assert (fields["run_id"], fields["payload"]["text"]) == (message.run.id, message.text)
        assert fields["attempt"] == message.attempt
        message.place, message.holder = "held", (worker, count, entry)
        message.deliveries = count
        milliseconds, _, sequence = entry.partition("-")
        message.entry = (int(milliseconds), int(sequence))
        lease = Lease(self.shard.work(message.stream), entry, worker, count)
        delivery = Delivery(self.bus, self.shard, message.stream, lease, envelope, Note())
        token = Token(message, delivery, body)
        self.tokens.append(token)
        return token

    def pick(self, which: tuple[int, int]) -> Token:
        """Pick a token, mostly one that holds its message, otherwise any earlier one."""
        number, stale = which
        valid = [token for token in self.tokens if token.valid]
        pool = self.tokens if stale == 0 or not valid else valid
        return pool[-1 - number % len(pool)]

    def end(self, run: Run, outcome: str) -> None:
        run.state, run.outcome = "ended", outcome
        self.published.append((run.id, run.generation, outcome, list(run.journal)))

    def settle_ended(self, message: Message) -> None:
        message.place = "kept" if message.run.outcome == "error" else "gone"
        message.holder = None

    def adopt_kept(self, run: Run) -> None:
        kept_messages = [item for item in self.messages if item.run is run and item.place == "kept"]
        for message in sorted(kept_messages, key=lambda item: item.entry):
            self.publish(message)

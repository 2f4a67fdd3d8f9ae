"""The pure model of the bus's rules, and its comparison with a server.

A message is in exactly one place; a run is active, or ended with one trajectory per generation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

from loopline.bus import Bus, Delivery, Envelope, Outgoing
from loopline.bus.keys import GROUP

STREAMS = ("planner", "slm")
WITHOUT_AN_END = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
end
return found
"""

Place = Literal["queued", "held", "delayed", "dead", "kept", "gone"]


@dataclass(eq=False, repr=False)
class Message:
    """A message of the model. It is in exactly one of these places."""

    run: Run
    stream: str
    turn: int
    branch: int = 0
    arrives: str = ""
    attempt: int = 0
    place: Place = "queued"
    holder: tuple[str, int, str] | None = None
    """Worker, delivery count, entry."""
    deliveries: int = 0
    begun: frozenset[int] = frozenset({1})
    """Deliveries whose handling may have started and whose end is unknown. The first counts as
    started until another process says otherwise."""
    letter: str = ""
    entry: tuple[int, int] = (0, 0)
    """Its last position on its stream."""

    def __repr__(self) -> str:
        # Runs and messages refer to each other: a generated repr would never end.
        return f"<{self.run.id} {self.text} {self.place}>"

    @property
    def guard(self) -> str:
        return f"{self.turn}.{self.branch}"

    @property
    def text(self) -> str:
        return f"{self.stream}/{self.guard}/{self.arrives}"


@dataclass(eq=False, repr=False)
class Run:
    id: str
    state: str = "active"
    outcome: str = ""
    journal: list[str] = field(default_factory=list[str])
    guards: dict[str, tuple[str, int, str]] = field(default_factory=dict[str, tuple[str, int, str]])
    joins: dict[str, tuple[int, Message]] = field(default_factory=dict[str, tuple[int, "Message"]])
    generation: int = 0
    failure: str = ""
    """The failure of the last retry, until the next commit."""
    turns: int = 1

    def __repr__(self) -> str:
        return f"<{self.id} {self.state} {self.outcome}>"


def outgoing(message: Message) -> Outgoing:
    """Return the model's message as sent over the wire."""
    envelope = Envelope(
        type="note", run_id=message.run.id, turn=message.turn, branch=message.branch,
        attempt=message.attempt, deadline=2e9, payload={"text": message.text},
    )  # fmt: skip
    return Outgoing(message.stream, envelope)


@dataclass(frozen=True, repr=False)
class Token:
    """The lease that a worker believes it holds after reading a message."""

    message: Message
    delivery: Delivery
    body: bytes

    def __repr__(self) -> str:
        return f"<token {self.key} for {self.message}>"

    @property
    def key(self) -> tuple[str, int, str]:
        lease = self.delivery.lease
        return (lease.consumer, lease.count, lease.entry)

    @property
    def valid(self) -> bool:
        return self.message.place == "held" and self.message.holder == self.key


async def assert_same(
    bus: Bus,
    runs: list[Run],
    messages: list[Message],
    published: list[tuple[str, int, str, list[str]]],
) -> None:
    """Check the server against the model: journals, messages in their places, trajectories in order
    with one per end of a run, and no key without a time to live."""
    shard = bus.keys.shard(0)
    pipe = bus.redis.pipeline(transaction=False)
    for run in runs:
        pipe.hgetall(shard.run(run.id))
        pipe.lrange(shard.journal(run.id), 0, -1)
    for stream in STREAMS:
        pipe.xlen(shard.work(stream))
        pipe.xpending_range(shard.work(stream), GROUP, "-", "+", 1000)
        pipe.zcard(shard.delayed(stream))
        pipe.hgetall(shard.begun(stream))
    pipe.zrange(shard.active, 0, -1)
    pipe.xrange(shard.dead)
    pipe.xrange(shard.trajectories)
    pipe.eval(WITHOUT_AN_END, 0, f"{{{bus.keys.prefix}:*")
    answers = iter(await pipe.execute())
    for run in runs:
        fields, steps = next(answers), next(answers)
        assert [json.loads(step) for step in steps] == run.journal
        assert fields[b"state"].decode() == run.state
        assert fields.get(b"outcome", b"").decode() == run.outcome
        assert fields.get(b"failure", b"").decode() == run.failure
        assert int(fields[b"generation"]) == run.generation
        kept_messages = [
            message for message in messages if message.run is run and message.place == "kept"
        ]
        assert sum(name.startswith(b"kept:") for name in fields) == len(kept_messages)
    for stream in STREAMS:
        mine = [message for message in messages if message.stream == stream]
        on_stream = [message for message in mine if message.place in ("queued", "held")]
        assert next(answers) == len(on_stream)
        assert {
            (
                message["consumer"].decode(),
                message["times_delivered"],
                message["message_id"].decode(),
            )
            for message in next(answers)
        } == {message.holder for message in mine if message.place == "held"}
        assert next(answers) == sum(message.place == "delayed" for message in mine)
        noted: dict[bytes, bytes] = next(answers)
        on_server = {
            entry.decode(): frozenset(map(int, counts.split())) for entry, counts in noted.items()
        }
        begun_by_entry = {
            message.holder[2]: message.begun for message in mine if message.holder is not None
        }
        # A first delivery leaves no record, and neither does a settled message.
        assert {entry: begun for entry, begun in begun_by_entry.items() if begun != {1}} == {
            entry: begun for entry, begun in on_server.items() if begun != {1}
        }
        assert on_server.keys() <= begun_by_entry.keys()
    active = {run_id.decode() for run_id in next(answers)}
    assert active == {run.id for run in runs if run.state == "active"}
    letters = {f"0/{entry.decode()}" for entry, _ in next(answers)}
    assert letters == {message.letter for message in messages if message.place == "dead"}
    trajectories = [
        (
            fields[b"run_id"].decode(),
            int(fields[b"generation"]),
            fields[b"outcome"].decode(),
            json.loads(fields[b"steps"]),
        )
        for _, fields in next(answers)
    ]
    assert trajectories == published
    for run in runs:
        ends = [generation for run_id, generation, _, _ in trajectories if run_id == run.id]
        assert ends == list(range(run.generation + (run.state == "ended")))
    assert next(answers) == []

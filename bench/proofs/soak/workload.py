"""Requests of `bench soak`, and its operations on the adapters; one seed determines everything."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from loopline.agents.records import JsonObject, Message, SamplingParams
from loopline.workers.engines.protocol import GenerateRequest

ADAPTERS = ("red", "green", "blue")

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 999}},
    "required": ["answer"],
    "additionalProperties": False,
}
IMPOSSIBLE: JsonObject = {"type": "no such type"}
"""Schema that cannot be compiled."""

LONGEST_WAIT = 0.4
"""Most seconds until a request is cancelled, dropped or timed out; a request takes about as
long."""

MAX_TOKENS = 40

Size = Literal["usual", "near the end", "too long"]


@dataclass(frozen=True)
class Room:
    """Length of prompts in tokens: `overhead + per_word * words` for `words` times WORD."""

    max_context: int
    overhead: int
    per_word: int

    def words(self, tokens: int) -> int:
        """Number of words for a prompt of that many tokens, or a few less."""
        return max(1, (tokens - self.overhead) // self.per_word)


WORD = " 7"


@dataclass(frozen=True)
class Planned:
    """One request and its planned end. Seconds are counted from the moment it is sent."""

    index: int
    text: str
    size: Size
    sampling: SamplingParams
    stream: bool
    schema: JsonObject | None
    adapter: str | None
    deadline: float | None = None
    """Seconds until its deadline; negative for a deadline that has already passed."""
    cancel_after: float | None = None
    """Seconds after which the engine is asked to cancel it."""
    drop_after: float | None = None
    """Seconds after which the task that reads its events is cancelled."""
    close_after: int | None = None
    """Number of events after which its iterator is closed."""
    repeated: bool = False
    """Whether an answered request is repeated without load."""

    @property
    def id(self) -> str:
        return f"soak-{self.index}"

    def request(self, now: float) -> GenerateRequest:
        """Return the engine's request; `now`: Unix seconds."""
        return GenerateRequest(
            id=self.id,
            messages=(Message(role="user", content=self.text),),
            sampling=self.sampling,
            stream=self.stream,
            json_schema=self.schema,
            adapter=self.adapter,
            deadline=None if self.deadline is None else now + self.deadline,
        )


@dataclass(frozen=True)
class Operation:
    """An operation on an adapter while requests are in flight: load its next version (even if none
    is loaded), unload it, or try to load a damaged file as its next version."""

    kind: Literal["load", "unload", "load damaged"]
    adapter: str
    weights: int = 0
    """Index of the set of weights for the next version."""


def plan_request(index: int, seed: int, room: Room, repeat_share: float) -> Planned:
    """Return request `index` of the plan `seed`; greedy ones are repeated with that probability."""
    rng = random.Random(f"{seed}/request/{index}")
    (size,) = rng.choices(("usual", "near the end", "too long"), weights=(95, 3, 2))
    temperature = rng.choice((0.0, 0.0, 0.7, 1.0, 1.5))
    (schema,) = rng.choices((None, SCHEMA, IMPOSSIBLE), weights=(88, 10, 2))
    return Planned(
        index=index,
        text=_text(rng, size, room),
        size=size,
        sampling=SamplingParams(
            temperature=temperature,
            top_p=rng.choice((1.0, 1.0, 0.9)),
            top_k=rng.choice((0, 0, 20)),
            max_tokens=rng.randint(1, MAX_TOKENS),
            seed=rng.choice((None, rng.randrange(2**31))),
            n=rng.choices((1, 2, 3), weights=(80, 12, 8))[0],
        ),
        stream=rng.random() < 0.5,
        schema=schema,
        adapter=rng.choice((None, *ADAPTERS)),
        deadline=_wait(rng) - 0.002 if rng.random() < 0.15 else None,
        cancel_after=_wait(rng) if rng.random() < 0.12 else None,
        drop_after=_wait(rng) if rng.random() < 0.06 else None,
        close_after=rng.randint(1, 12) if rng.random() < 0.08 else None,
        repeated=temperature == 0.0 and rng.random() < repeat_share,
    )


def operations(index: int, seed: int, weights: int) -> list[Operation]:
    """Operations on the adapters after request `index` was sent. An unloaded adapter returns a few
    requests later. `weights`: the number of sets of weights."""
    return [
        *_operations_begun_at(index, seed, weights),
        *(
            Operation("load", unload.adapter, index % weights)
            for earlier in range(max(0, index - _ABSENCE[1]), index)
            for unload in _operations_begun_at(earlier, seed, weights)
            if unload.kind == "unload" and earlier + _unloaded_until(earlier, seed) == index
        ),
    ]


_ABSENCE = (2, 10)
"""Least and most requests during which an unloaded adapter is absent."""


def _unloaded_until(index: int, seed: int) -> int:
    return random.Random(f"{seed}/away/{index}").randint(*_ABSENCE)


def _operations_begun_at(index: int, seed: int, weights: int) -> list[Operation]:
    rng = random.Random(f"{seed}/operation/{index}")
    (kind,) = rng.choices((None, "load", "unload", "load damaged"), weights=(940, 40, 12, 8))
    if kind is None:
        return []
    return [Operation(kind, rng.choice(ADAPTERS), rng.randrange(weights))]


def _wait(rng: random.Random) -> float:
    """Return seconds: half of them uniform over the orders of magnitude, while a request is queued
    or read; half uniform over the range, mostly while it is being generated."""
    return LONGEST_WAIT * rng.choice((10 ** rng.uniform(-3, 0), rng.random()))


def _text(rng: random.Random, size: Size, room: Room) -> str:
    if size == "too long":
        return WORD * room.words(int(room.max_context * rng.uniform(1.1, 2.0)))
    if size == "near the end":
        # The last words differ, so that no prompt is completely in the cache.
        reserve = rng.randint(2, MAX_TOKENS) + 8 * room.per_word
        return WORD * (room.words(room.max_context - reserve)) + f" {rng.randrange(10)} 7"
    question = f"What is {rng.randrange(100)} * {rng.randrange(10)} + {rng.randrange(100)}?"
    (beginning,) = rng.choices(("role", "fresh", "none", "again"), weights=(50, 25, 15, 10))
    match beginning:
        case "role":
            role = random.Random(f"role {rng.randrange(4)}")
            return f"{_words(role, role.randint(10, 60))}\n{question}"
        case "fresh":
            return f"{_words(rng, rng.randint(1, 60))}\n{question}"
        case "none":
            return question
        case _:
            return f"What is {rng.randrange(5)} * 7?"


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(_SENTENCES.split(), k=count))


_SENTENCES = (
    "Anna buys 12 apples and gives 5 to Ben; how many has she left? The shop sells pens for 3 "
    "each, boxes of 24 and bags of 7. Then twice as much, half of it, and what remains."
)

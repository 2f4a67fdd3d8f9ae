"""The rows that run for any amount of memory: the scheduler on a backend that only counts.

Its next token is a sum over the row's whole memory, so a row that was read wrongly, twice or after
another row's keys and values ends with other tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from loopline.agents.records import Message, ToolSpec
from loopline.agents.template_options import TemplateValue
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import Shortage, common_prefix
from loopline.workers.engines.local.row import Job, Row
from loopline.workers.engines.local.scheduler import Scheduler
from loopline.workers.engines.protocol import Completion, EngineError
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.asking import request, user

VOCABULARY = 30
ALONE = "it does not fit, not even alone"


class Letters:
    """A is 1, B is 2."""

    def encode(self, text: str, after: int | None = None) -> list[int]:
        return [ord(letter) - 64 for letter in text]

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        return "".join(chr(64 + token) for token in ids)


class Counting:
    """The model: its context holds 64 letters."""

    base = "counting"
    codec = Letters()
    end_ids: frozenset[int] = frozenset()
    max_context = 64
    vocabulary = VOCABULARY

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        options: Mapping[str, TemplateValue] | None = None,
    ) -> str:
        return "".join(message.content or "" for message in messages)

    def grammar_tokenizer(self) -> Any:
        raise NotImplementedError


def next_token(ids: Sequence[int]) -> int:
    return (sum(place * token for place, token in enumerate(ids, 1)) + len(ids)) % 26 + 1


class NoRoom(Exception):
    """More tokens than there are cells."""


class CountingBackend:
    """Holds each row's tokens, at most `cells` in total, and checks that they belong to the row."""

    kind = "counting"
    max_rows = 5
    reads_apart = True
    cells = 0
    halve = True

    def __init__(self, settings: ModelSettings) -> None:
        self.memory: dict[Row, list[int]] = {}
        self.kv_capacity: int | None = 64

    def load(self) -> Counting:
        return Counting()

    def unload(self) -> None: ...

    def context(self) -> AbstractContextManager[object]:
        return nullcontext()

    def find_prefix(self, adapter: AdapterVersion | None, ids: Sequence[int]) -> tuple[Any, int]:
        length = max((common_prefix(tokens, ids) for tokens in self.memory.values()), default=0)
        return list(ids[:length]), length

    def room_for(self, row: Row, rows: Sequence[Row], passed: Sequence[Row], places: int) -> bool:
        siblings = sum(len(member.siblings) for member in (*rows, row)) if self.halve else 0
        return len(rows) + siblings < places

    def joins(self, row: Row, reading: Sequence[Row]) -> bool:
        return not (self.reads_apart and reading and row.unchecked)

    def enter(self, row: Row, prefix: Any) -> None:
        self.memory[row] = prefix

    def plan(self, rows: Sequence[Row]) -> dict[Row, int]:
        reading = [row for row in rows if row.reading] if self.reads_apart else []
        return {row: min(row.left, 25 if self.reads_apart else 3) for row in reading or rows}

    def step(self, feeds: Mapping[Row, int]) -> NDArray[np.float32]:
        used = sum(map(len, self.memory.values()))
        if used + sum(feeds.values()) > self.cells:
            raise NoRoom
        places: list[int] = []
        for row, count in feeds.items():
            tokens = self.memory[row]
            assert tokens == row.ids[: row.fed]
            for token in row.ids[row.fed : row.fed + count]:
                tokens.append(token)
                places.append(next_token(tokens))
            del places[len(places) - count : len(places) - row.wanted(count)]
        return np.eye(VOCABULARY, dtype=np.float32)[places] * 50  # [wanted, vocabulary]

    def fork(self, row: Row, siblings: Sequence[Row], places: int) -> Sequence[Row]:
        forked = siblings[: max(0, places)]
        for sibling in forked:
            self.memory[sibling] = list(self.memory[row])
        return forked

    def finish(self, rows: Sequence[Row]) -> None:
        self.drop(rows)

    def drop(self, rows: Sequence[Row]) -> None:
        for row in rows:
            del self.memory[row]

    def lost(self, rows: Sequence[Row]) -> Sequence[Row]:
        return ()

    def recompute_logprobs(self, rows: Sequence[Row]) -> None: ...

    def score(self, ids: Sequence[int], adapter: AdapterVersion | None) -> list[float]:
        if sum(map(len, self.memory.values())) + len(ids) > self.cells:
            raise NoRoom
        return [0.0] * (len(ids) - 1)

    def shortage(self, error: Exception) -> Shortage | None:
        if not isinstance(error, NoRoom):
            return None
        return Shortage("no cell", EngineError(ALONE, kind="unavailable"), self.halve)

    def release(self) -> None: ...

    def in_use(self) -> dict[str, int]:
        return {"held": len(self.memory)}

    def read_adapter(self, path: str) -> Any: ...

    def load_adapter(self, read: Any) -> Any: ...

    def forget_adapter(self, adapter: AdapterVersion) -> None: ...


def expected(prompt: str, count: int) -> tuple[int, ...]:
    ids = Letters().encode(prompt)
    for _ in range(count):
        ids.append(next_token(ids))
    return tuple(ids[len(prompt) :])


def started(cells: int, *, apart: bool, halve: bool) -> tuple[Scheduler, CountingBackend]:
    settings = ModelSettings(engine="torch", model="counting")
    backend = CountingBackend(settings)
    backend.cells, backend.reads_apart, backend.halve = cells, apart, halve
    return Scheduler(backend, backend.load()), backend


def job(prompt: str, count: int, n: int = 1, resumed: int = 0) -> Job:
    return Job(
        request(
            (user(prompt),),
            sampling={"max_tokens": count, "n": n},
            resume_ids=expected(prompt, resumed),
        ),
        asyncio.Queue(),
        seed=0,
    )


def answers(scheduler: Scheduler, jobs: Sequence[Job]) -> dict[Job, list[Any]]:
    """Turn until no work is left."""
    events_by_job: dict[Job, list[Any]] = {engine_job: [] for engine_job in jobs}
    for _ in range(5_000):
        if scheduler.idle:
            break
        scheduler.turn()
    assert scheduler.idle
    for engine_job, event in scheduler.outbox:
        events_by_job[engine_job].append(event)
    return events_by_job


PROMPTS = st.one_of(
    st.text("ABC", min_size=1, max_size=12),
    # Prefixes long enough to wait for.
    st.text("XY", min_size=1, max_size=4).map(lambda end: "ROLEROLEROLEROLEROLE" + end),
)
REQUESTS = st.lists(
    st.tuples(PROMPTS, st.integers(1, 12), st.integers(1, 3), st.integers(0, 11)),
    min_size=1,
    max_size=9,
)


@given(REQUESTS, st.integers(40, 150), st.booleans(), st.booleans())
@example([("ABC", 12, 3, 0)] * 6, 40, True, True)
@example([("ABC", 12, 3, 0)] * 6, 40, False, False)
def test_every_answer_is_the_same_as_without_other_requests(
    requests: list[tuple[str, int, int, int]], cells: int, apart: bool, halve: bool
) -> None:
    scheduler, backend = started(cells, apart=apart, halve=halve)
    jobs: dict[Job, tuple[str, int, int]] = {}
    for prompt, count, n, resumed in requests:
        resume_length = resumed if n == 1 and resumed < count else 0
        jobs[job(prompt, count, n, resume_length)] = (prompt, count, n)
    for engine_job in jobs:
        scheduler.add(engine_job)
    for engine_job, events in answers(scheduler, list(jobs)).items():
        prompt, count, n = jobs[engine_job]
        if any(isinstance(event, EngineError) for event in events):
            # Only a request that needs more than the cells alone may fail.
            assert [str(event) for event in events] == [ALONE]
            assert n * (len(prompt) + count) > cells // 2
            continue
        assert sorted(event.index for event in events) == list(range(n))
        for event in events:
            assert isinstance(event, Completion)
            assert event.output_ids == expected(prompt, count)
    assert backend.memory == {}
    assert not any(scheduler.in_use().values())


@given(REQUESTS, st.lists(st.integers(0, 8), max_size=4), st.integers(0, 20), st.booleans())
def test_an_abandoned_request_leaves_nothing_and_changes_nothing(
    requests: list[tuple[str, int, int, int]], leaving: list[int], turns: int, apart: bool
) -> None:
    scheduler, backend = started(100, apart=apart, halve=apart)
    jobs = [job(prompt, count) for prompt, count, _, _ in requests]
    for engine_job in jobs:
        scheduler.add(engine_job)
    for _ in range(turns):
        scheduler.turn()
    gone = {jobs[place] for place in leaving if place < len(jobs)}
    for engine_job in gone:
        scheduler.abandon(engine_job)
    for engine_job, events in answers(scheduler, jobs).items():
        if engine_job not in gone:
            prompt, count, *_ = requests[jobs.index(engine_job)]
            assert [event.output_ids for event in events] == [expected(prompt, count)]
    assert backend.memory == {}


def test_a_prompt_waits_for_one_with_the_same_prefix_and_lets_others_pass() -> None:
    scheduler, _ = started(1000, apart=True, halve=True)
    role = "ROLEROLEROLEROLEROLE"
    first, alike, other = job(f"{role}A", 3), job(f"{role}B", 3), job("C", 3)
    for engine_job in (first, alike, other):
        scheduler.add(engine_job)
    completions = answers(scheduler, [first, alike, other])
    assert [done.usage.cached for (done,) in completions.values()] == [0, len(role), 0]


def test_a_score_takes_the_youngest_row_s_room_and_that_row_resumes_later() -> None:
    scheduler, backend = started(24, apart=False, halve=False)
    jobs = [job("ABCDE", 5), job("ABXYZ", 5)]
    for engine_job in jobs:
        scheduler.add(engine_job)
    for _ in range(4):
        scheduler.turn()
    assert scheduler.score(list(range(1, 13)), None) == [0.0] * 11
    assert len(backend.memory) == 1
    completions = answers(scheduler, jobs)
    for engine_job, prompt in zip(jobs, ("ABCDE", "ABXYZ"), strict=True):
        assert [done.output_ids for done in completions[engine_job]] == [expected(prompt, 5)]


def test_its_load_counts_rows_waiting_requests_and_tokens_in_memory() -> None:
    scheduler, backend = started(100, apart=False, halve=False)
    jobs = [job("ABCDEF", 4) for _ in range(backend.max_rows + 2)]
    for engine_job in jobs:
        scheduler.add(engine_job)
    scheduler.turn()
    state = scheduler.occupancy()
    assert (state.rows, state.waiting) == (backend.max_rows, 2)
    assert state.kv_tokens == sum(map(len, backend.memory.values())) > 0
    assert state.kv_capacity == backend.kv_capacity
    answers(scheduler, jobs)
    assert scheduler.occupancy().rows == scheduler.occupancy().kv_tokens == 0

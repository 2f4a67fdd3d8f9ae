"""A provider that bills each call when it gets it, and the workers that call it.

Its book is a file that survives every death of a worker and every restart of Redis: one line for
each call, written before the answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import structlog
import uvloop

from loopline.agents.records import Usage
from loopline.bus import Bus, BusSettings, Consumer
from loopline.workers.engines.protocol import (
    Capabilities,
    Completion,
    EngineError,
    EngineEvent,
    EngineTotals,
    GenerateRequest,
    NotBilled,
    Sending,
)
from loopline.workers.engines.settings import ModelSettings, cost_micro_dollars
from loopline.workers.gpu import Pool
from loopline.workers.messages import inference_stream, registry
from loopline.workers.process_lifetime import tie_to_parent

POOL = "llm"
MOST_PROMPT, MOST_COMPLETION = 1_000, 1_000
PROMPT, COMPLETION = 250, 500
"""The actual tokens of a call: exactly this prompt, and at most this completion."""
SETTINGS = ModelSettings.model_validate(
    {"engine": "openai", "model": "billed", "price": {"prompt": "10", "completion": "40"}}
)
"""Model whose calls cost at most $0.05, and $0.0125 on average."""
SECONDS = 0.02
"""Most seconds that a call takes, apart from the stragglers that hedges are for."""
STRAGGLERS = 0.1
"""Share of a hedged provider's calls that take 10 times as long: on a busy machine, the timers of
other calls and of their hedges end together."""
SLOW = SECONDS / 2
"""Seconds after which a hedged call is sent a second time."""
REFUSED = 0.03
"""Share of calls that the provider refuses, and does not bill."""
PLACES = 128


class BilledEngine:
    """The money side of an endpoint's engine."""

    def __init__(self, book: Path, rng: random.Random, *, stragglers: float = 0.0) -> None:
        self._book = os.open(book, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._rng = rng
        self._stragglers = stragglers

    @property
    def name(self) -> str:
        return "billed"

    @property
    def base(self) -> str:
        return SETTINGS.model

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            token_ids=False, logprobs=False, streaming=False, tools=False, tool_choice=False,
            penalties=False, top_logprobs=False, json_schema=False, seeds=False, score=False,
            adapters=False, continuation=False, max_context=None, announces_calls=True,
        )  # fmt: skip

    async def start(self) -> None:
        """Do nothing: there is no model to load."""

    async def close(self) -> None:
        os.close(self._book)

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """Answer one call, and bill it."""
        yield Sending(number=1, prompt=MOST_PROMPT, completion=MOST_COMPLETION)
        if self._rng.random() < REFUSED:
            yield NotBilled(sending=1)
            raise EngineError("refused", kind="unavailable", retryable=True)
        completion = self._rng.randint(0, COMPLETION)
        usage = Usage(prompt=PROMPT, completion=completion, source="provider")
        cost = cost_micro_dollars(usage, SETTINGS.price)
        os.write(self._book, f"{request.id.partition('/')[0]} {cost}\n".encode())
        late = self._rng.random() < self._stragglers
        await asyncio.sleep(10 * SECONDS if late else self._rng.uniform(0, SECONDS))
        yield Completion(text="42", finish_reason="stop", usage=usage, sending=1)

    async def cancel(self, request_id: str) -> None:
        """Do nothing: the provider bills a cancelled call as well."""

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        raise EngineError("no scores", kind="bad_request")

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        raise EngineError("no adapters", kind="unknown_adapter")

    async def unload_adapter(self, name: str) -> None:
        raise EngineError("no adapters", kind="unknown_adapter")

    def totals(self) -> EngineTotals:
        return EngineTotals(0, 0, 0)


def read_book(book: Path) -> tuple[Counter[str], int]:
    """Return the billed micro-dollars by run, and the number of calls."""
    billed: Counter[str] = Counter()
    lines = book.read_text().splitlines() if book.exists() else []
    for line in lines:
        run_id, cost = line.split()
        billed[run_id] += int(cost)
    return billed, len(lines)


def serve(settings: BusSettings, book: Path, seed: int, hedge: bool) -> None:
    """Run a gpu worker until it is killed."""
    import signal

    tie_to_parent(signal.SIGKILL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    uvloop.run(_serve(settings, book, seed, hedge))


async def _serve(settings: BusSettings, book: Path, seed: int, hedge: bool) -> None:
    engine = BilledEngine(book, random.Random(seed), stragglers=STRAGGLERS if hedge else 0.0)
    model = SETTINGS.model_copy(update={"hedge_after": SLOW}) if hedge else SETTINGS
    pool = Pool(POOL, model, engine, f"gpu-{os.getpid()}")
    async with Bus(settings, registry(), join_seconds=60) as bus:
        await Consumer(
            bus, [inference_stream(POOL)], pool.handle, concurrency=PLACES, worker=pool.worker
        ).run()

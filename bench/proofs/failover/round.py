"""Time that 16 streamed completions wait after `kill -9` of the gpu worker that was writing them.

Two workers run with the same model, as in a deployment. One has all the requests, each in the
middle of its text, and is killed; the other is idle and takes them over. The time includes the rest
of the texts, so for comparison the same requests are sent to the other worker again, from their
beginning.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from loopline.agents.records import Call, Message, SamplingParams
from loopline.agents.usage import UsageEntry
from loopline.bench.errors import BenchError
from loopline.bench.proofs.time_limit import time_limit
from loopline.bus import Admission, Bus, BusSettings, Envelope, Inbox
from loopline.testing import running_workers
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.messages import CompletionPayload, calls, inference_stream, registry
from loopline.workers.settings import GpuWorkerSettings

IN_FLIGHT = 16
POOL = "slm"
STREAM = inference_stream(POOL)
SAMPLING = SamplingParams(temperature=0.0, max_tokens=256)
"""Sampling of an answer of usual length, for a model that does not end a text by itself."""
TIMEOUT = 120.0
START_SECONDS = 300.0
"""Limit for the workers: a vLLM server on a CPU compiles when it starts."""


@dataclass(frozen=True)
class Round:
    """Figures of one round; seconds are from the kill, unless stated otherwise."""

    continued: float
    """Seconds until the last of the requests had a new token."""
    answer_seconds: float
    """Seconds until the last of the requests was answered."""
    written: int
    """Tokens of all requests together when the worker was killed."""
    left: int
    """Tokens that the requests got after the kill."""
    undisturbed: float
    """Seconds in which the other worker answers the same requests without a kill."""


@dataclass(eq=False)
class _Request:
    """One request in a separate run, and the text that a follower has read of it."""

    run_id: str
    seed: int
    text: str = ""
    tokens: list[float] = field(default_factory=list[float])
    """Times at which the tokens were read."""
    answered_at: float = 0.0


async def play(settings: BusSettings, model: ModelSettings, number: int, folder: Path) -> Round:
    """Raises `BenchError` if an answer is billed twice, or a follower reads another text."""

    def gpu(name: str) -> GpuWorkerSettings:
        return GpuWorkerSettings(bus=settings, name=name, models={POOL: model})

    async with (
        running_workers([gpu("second"), gpu("first")], folder, START_SECONDS) as (second, first),
        Bus(settings, registry()) as bus,
        Inbox(bus) as inbox,
    ):
        # Frozen until its blocking read has ended, so that the first worker gets everything.
        second.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2 * settings.block_seconds)
        requests = [_Request(str(uuid.uuid4()), number * IN_FLIGHT + n) for n in range(IN_FLIGHT)]
        asking = asyncio.gather(*(_ask(bus, inbox, request) for request in requests))
        await _wait_until_begun(requests, asking)
        second.send_signal(signal.SIGCONT)
        # Renewals happen every third of a lease: the kill may be anywhere between two of them.
        await asyncio.sleep(random.uniform(0.0, settings.lease_seconds / 3))
        first.send_signal(signal.SIGKILL)
        killed = time.perf_counter()
        if any(request.answered_at for request in requests):
            raise BenchError(
                "requests were answered before the worker was killed: the model is too fast for "
                "this measurement; use a larger one with --model"
            )
        written = sum(len(request.tokens) for request in requests)
        answers = await asking
        await _check(bus, requests, answers)
        again = [_Request(str(uuid.uuid4()), request.seed) for request in requests]
        began = time.perf_counter()
        await asyncio.gather(*(_ask(bus, inbox, request) for request in again))
        return Round(
            continued=max(next(at for at in request.tokens if at > killed) for request in requests)
            - killed,
            answer_seconds=max(request.answered_at for request in requests) - killed,
            written=written,
            left=sum(len(request.tokens) for request in requests) - written,
            undisturbed=time.perf_counter() - began,
        )


async def _wait_until_begun(requests: list[_Request], asking: asyncio.Future[list[Call]]) -> None:
    async with time_limit(TIMEOUT, "not every request had its first token"):
        while not all(request.tokens for request in requests):
            if asking.done():
                await asking
            await asyncio.sleep(0.005)


async def _ask(bus: Bus, inbox: Inbox, request: _Request) -> Call:
    """Return the answer, with the log read to its end."""
    run_id, deadline = request.run_id, time.time() + TIMEOUT
    await bus.admit(Admission(run_id, b"{}", deadline, ()))
    payload = CompletionPayload(
        agent="slm",
        pool=POOL,
        messages=(Message(role="user", content=f"What is {request.seed} * 7 + 5?"),),
        sampling=SAMPLING,
        seed=request.seed,
        stream=True,
    )
    envelope = Envelope(
        type="completion",
        run_id=run_id,
        turn=0,
        branch=0,
        deadline=deadline,
        reply_key=f"{run_id}/0.0/0",
        payload=payload.model_dump(mode="json"),
    )
    reading = asyncio.create_task(_read(bus, request))
    (call,) = calls.validate_json(await inbox.request(STREAM, envelope))
    request.answered_at = time.perf_counter()
    await bus.end_run(run_id, "answered", "")
    await reading
    return call


async def _read(bus: Bus, request: _Request) -> None:
    async for _, entry in bus.follow(request.run_id):
        if entry["type"] == "ended":
            return
        tokens = entry["ids"].count(",") + 1
        request.text = request.text * (entry["type"] != "restart") + entry["text"]
        request.tokens += [time.perf_counter()] * tokens


async def _check(bus: Bus, requests: list[_Request], answers: list[Call]) -> None:
    for request, call in zip(requests, answers, strict=True):
        usage = [UsageEntry.model_validate_json(line) for line in await bus.usage(request.run_id)]
        used = Counter(entry.call_id for entry in usage if not entry.discarded)
        if used != {call.id: 1}:
            raise BenchError(f"run {request.run_id}: the ledger has {dict(used)} for one call")
        if (request.text, len(request.tokens)) != (call.text, len(call.output_ids)):
            raise BenchError(f"run {request.run_id}: its follower read a different text")

"""Streamed requests whose worker is gone and whose successor can't continue from the ids."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from loopline.agents.records import Call, SamplingParams
from loopline.agents.usage import UsageEntry
from loopline.bus import Bus, Delivery, LeaseLost
from loopline.workers.engines.scripted.engine import ScriptedEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gpu import Pool
from loopline.workers.messages import CompletionPayload, calls
from tests.bus.leasing import ask, take
from tests.bus.payloads import admit
from tests.bus.serving import until
from tests.workers.engines.asking import QUESTION, user
from tests.workers.streaming import Reader
from tests.workers.test_gpu import answer

LONG = "The answer is nine and eighty, which takes a while to say."
OTHER = "It is nine and eighty."


def saying(text: str, tokens_per_second: float | None = None) -> Pool:
    """A worker's model with one fixed answer; the same for each of several completions."""
    by_heart = {"where": [QUESTION], "says": [text]}
    scripted = {"answers": [by_heart], "tokens_per_second": tokens_per_second}
    settings = ModelSettings.model_validate(
        {"engine": "scripted", "model": "scripted-slm", "scripted": scripted}
    )
    return Pool("slm", settings, ScriptedEngine(settings))


def streamed(leased: Delivery, n: int) -> Delivery:
    payload = CompletionPayload(
        agent="slm",
        pool="slm",
        messages=(user(QUESTION),),
        sampling=SamplingParams(n=n),
        seed=1,
        stream=True,
    )
    return replace(leased, payload=payload)


async def begun(bus: Bus, run_id: str, delivery: Delivery) -> asyncio.Task[None]:
    """Return the task of a worker that has published the beginning of `LONG`."""
    worker = asyncio.create_task(saying(LONG, tokens_per_second=100).handle(delivery))
    log = bus.keys.shard_of(run_id).log(run_id)

    async def is_published() -> bool:
        assert not worker.done()
        return any(fields[b"text"] for _, fields in await bus.redis.xrange(log))

    await until(is_published, "the beginning of a text")
    return worker


async def taken_over(bus: Bus, successor: Pool, n: int) -> tuple[tuple[Call, ...], Reader]:
    """Return the reply and the followers' text when a worker is gone in the middle of `LONG`."""
    run_id = await admit(bus, "other")
    await ask(bus, run_id)
    first = await take(bus, run_id, "first")
    lost = await begun(bus, run_id, streamed(first, n))
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    second = await take(bus, run_id, "second", after=first)
    await successor.handle(streamed(second, n))
    replied = calls.validate_json(await answer(bus, run_id))
    await bus.end_run(run_id, "answered", "")
    reader = Reader()
    await asyncio.wait_for(reader.read(bus, run_id), 20)
    return replied, reader


async def test_a_successor_answers_a_request_for_several_completions(bus: Bus) -> None:
    replied, _ = await taken_over(bus, saying(LONG), 2)
    assert [call.text for call in replied] == [LONG, LONG]


async def test_followers_of_several_completions_read_the_first_once(bus: Bus) -> None:
    replied, reader = await taken_over(bus, saying(LONG), 2)
    assert (reader.text, reader.restarts) == (LONG, 0)
    assert tuple(reader.ids) == replied[0].output_ids


async def test_a_successor_with_a_different_answer_generates_it_from_the_start(
    bus: Bus,
) -> None:
    """Its weights may be newer than those of the first worker."""
    replied, _ = await taken_over(bus, saying(OTHER), 1)
    assert [call.text for call in replied] == [OTHER]


async def test_followers_restart_with_a_successor_s_different_answer(bus: Bus) -> None:
    replied, reader = await taken_over(bus, saying(OTHER), 1)
    assert (reader.text, reader.restarts) == (OTHER, 1)
    assert tuple(reader.ids) == replied[0].output_ids


async def test_the_ledger_has_the_cost_even_if_the_lease_is_lost_at_the_text_s_end(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.workers.token_stream.FLUSH_SECONDS", math.inf)
    run_id = await admit(bus, "other")
    await ask(bus, run_id)
    first = await take(bus, run_id, "first")
    lost = await begun(bus, run_id, streamed(first, 2))
    await take(bus, run_id, "second", after=first)
    with pytest.raises(LeaseLost):
        await lost
    entries = [UsageEntry.model_validate_json(entry) for entry in await bus.usage(run_id)]
    assert [entry.discarded for entry in entries] == [True, True]

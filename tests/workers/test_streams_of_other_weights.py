"""Streamed requests whose worker is gone and whose successor has other weights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from loopline.agents.records import Call, SamplingParams
from loopline.bus import Bus, Delivery, TokenWriter
from loopline.workers.engines.protocol import Completion, Delta
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchEngine
from loopline.workers.gpu import Pool
from loopline.workers.messages import CompletionPayload, calls
from loopline.workers.token_stream import TokenStream
from tests.bus.leasing import ask, take
from tests.bus.payloads import admit
from tests.workers.engines.asking import QUESTION, request, user
from tests.workers.streaming import Reader
from tests.workers.test_gpu import answer

POLICY = "slm/red"
SAMPLING = SamplingParams(temperature=1.0, max_tokens=30)
PUBLISHED = 12
"""Tokens that followers have received when the worker is gone."""
SAME = 1e-4
"""The tolerance of log-probabilities that are computed in batches of other shapes."""


@pytest.fixture
async def pool(tiny_model: Path, tiny_loras: list[Path]) -> AsyncIterator[Pool]:
    """A worker's model, with the first version of its policy."""
    settings = ModelSettings(engine="torch", model=str(tiny_model))
    engine = TorchEngine(settings)
    await engine.start()
    await engine.load_adapter(POLICY, str(tiny_loras[0]), 1)
    yield Pool("slm", settings, engine)
    await engine.close()


async def begun(pool: Pool, delivery: Delivery, base: str | None = None) -> None:
    """Publish the start of a text, as a worker does before it is gone."""
    stream = TokenStream(delivery, "slm", base or pool.engine.base, continues=True)
    generate_request = request(
        sampling={**SAMPLING.model_dump(), "seed": 1}, adapter=POLICY, stream=True
    )
    count = 0
    async with aclosing(pool.engine.submit(generate_request)) as events:
        async for event in events:
            assert isinstance(event, Delta), "the text goes on"
            await stream.write(event)
            count += 1
            if count == PUBLISHED:
                break
    await stream.flush()


async def gone_on(bus: Bus, pool: Pool, first: Delivery) -> tuple[Call, Reader]:
    """Return the successor's reply and the text that followers read."""
    run_id = first.envelope.run_id
    payload = CompletionPayload(
        agent="slm",
        pool="slm",
        policy=POLICY,
        messages=(user(QUESTION),),
        sampling=SAMPLING,
        seed=1,
        stream=True,
    )
    second = await take(bus, run_id, "second", after=first)
    await pool.handle(replace(second, payload=payload))
    (call,) = calls.validate_json(await answer(bus, run_id))
    await bus.end_run(run_id, "answered", "")
    reader = Reader()
    await reader.read(bus, run_id)
    assert (reader.text, tuple(reader.ids)) == (call.text, call.output_ids)
    return call, reader


@pytest.fixture
async def first(bus: Bus) -> Delivery:
    run_id = await admit(bus, "other")
    await ask(bus, run_id)
    return await take(bus, run_id, "first")


async def test_a_text_of_the_same_version_is_continued(
    bus: Bus, pool: Pool, first: Delivery
) -> None:
    await begun(pool, first)
    _, reader = await gone_on(bus, pool, first)
    assert reader.restarts == 0


async def test_followers_restart_when_another_version_was_published_meanwhile(
    bus: Bus, pool: Pool, first: Delivery, tiny_loras: list[Path]
) -> None:
    await begun(pool, first)
    await pool.engine.load_adapter(POLICY, str(tiny_loras[1]), 2)
    call, reader = await gone_on(bus, pool, first)
    assert (reader.restarts, call.policy.version) == (1, 2)


async def test_a_call_records_the_version_that_generated_all_of_its_tokens(
    bus: Bus, pool: Pool, first: Delivery, tiny_loras: list[Path]
) -> None:
    """The call has the later version's answer to the same request, and its log-probabilities."""
    await begun(pool, first)
    await pool.engine.load_adapter(POLICY, str(tiny_loras[1]), 2)
    await pool.engine.load_adapter("alone", str(tiny_loras[1]), 1)
    generate_request = request(sampling={**SAMPLING.model_dump(), "seed": 1}, adapter="alone")
    alone = [event async for event in pool.engine.submit(generate_request)][-1]
    assert isinstance(alone, Completion)
    call, _ = await gone_on(bus, pool, first)
    assert call.output_ids == alone.output_ids
    assert call.logprobs == pytest.approx(alone.logprobs, abs=SAME)


async def test_followers_restart_when_another_model_generated_the_text(
    bus: Bus, pool: Pool, first: Delivery
) -> None:
    await begun(pool, first, base="another-model")
    _, reader = await gone_on(bus, pool, first)
    assert reader.restarts == 1


async def test_followers_restart_when_the_log_does_not_name_the_text_s_model(
    bus: Bus, pool: Pool, first: Delivery
) -> None:
    """An older worker's log does not contain that name."""
    await TokenWriter(first, "slm").append("It", [50, 51])
    _, reader = await gone_on(bus, pool, first)
    assert reader.restarts == 1


async def test_followers_restart_when_the_base_model_generated_the_text(
    bus: Bus, pool: Pool, first: Delivery
) -> None:
    """The base model stood in until the policy's first version was published."""
    stream = TokenStream(first, "slm", pool.engine.base, continues=True)
    await stream.write(Delta(text="It", ids=(50, 51)))
    await stream.flush()
    _, reader = await gone_on(bus, pool, first)
    assert reader.restarts == 1

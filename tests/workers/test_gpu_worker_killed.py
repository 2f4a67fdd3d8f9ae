"""kill -9 of a gpu worker with 16 streamed requests in flight for each of its models: another
worker continues them, and followers cannot tell."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from loopline.agents.records import Call
from loopline.agents.usage import UsageEntry
from loopline.bus import Bus, BusSettings, Inbox
from loopline.testing import RedisProcess
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.messages import inference_stream, registry
from loopline.workers.settings import GpuWorkerSettings
from tests.bus.serving import pending, until
from tests.conftest import quick_settings
from tests.workers.processes import spawn_faulty, workers_running
from tests.workers.streaming import Reader, Streamed, ask_streaming

IN_FLIGHT = 16
WITHIN = 90.0
"""Seconds for every wait in this module: two processes load torch on a busy machine."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one request."""

    before: int
    """Tokens published before the worker was killed."""
    call: Call
    read: Reader
    usage: list[UsageEntry]


@pytest.fixture(scope="module")
def outcomes(
    _shared_servers: dict[str, RedisProcess],
    tiny_model: Path,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[Outcome]]:
    """Outcomes of each engine's requests after the kill of the worker that held them all."""
    models = {"torch": ModelSettings(engine="torch", model=str(tiny_model))}
    if find_spec("llama_cpp") is not None:
        gguf = str(request.getfixturevalue("tiny_gguf"))
        models["llama_cpp"] = ModelSettings(engine="llama_cpp", model=gguf, dtype="float32")
    server = next(iter(_shared_servers.values()))
    settings = quick_settings(server.url, lease_seconds=1.5)
    return asyncio.run(_kill_one_of_two(settings, models, tmp_path_factory.mktemp("workers")))


async def _kill_one_of_two(
    settings: BusSettings, models: dict[str, ModelSettings], folder: Path
) -> dict[str, list[Outcome]]:
    first = GpuWorkerSettings(bus=settings, name="first", models=models)
    doomed = spawn_faulty(first, folder, "slows")
    try:
        async with Bus(settings, registry()) as bus, Inbox(bus) as inbox:
            requests_by_pool = {
                # A greedy row generates the same tokens as its neighbours; a sampled one its own.
                pool: [
                    await ask_streaming(bus, inbox, pool, seed, temperature=1.5 * (seed % 2))
                    for seed in range(IN_FLIGHT)
                ]
                for pool in models
            }
            everything = [request for streamed in requests_by_pool.values() for request in streamed]

            async def held() -> bool:
                return [await pending(bus, inference_stream(pool)) for pool in models] == [
                    IN_FLIGHT
                ] * len(models)

            await until(held, "worker that has all requests in hand", WITHIN)
            second = first.model_copy(update={"name": "second"})
            async with workers_running([second], folder):
                log = folder / "second.log"
                await until(lambda: " ready " in log.read_text(), "second worker", WITHIN)
                await until(
                    lambda: all(request.reader.ids for request in everything), "texts", WITHIN
                )
                doomed.kill()
                before = {request: len(request.reader.ids) for request in everything}
                assert not any(request.reply.done() for request in everything)
                return {
                    pool: [await _outcome(bus, request, before[request]) for request in streamed]
                    for pool, streamed in requests_by_pool.items()
                }
    finally:
        doomed.kill()
        doomed.wait()


async def _outcome(bus: Bus, streamed: Streamed, before: int) -> Outcome:
    async with asyncio.timeout(WITHIN):
        call = await streamed.call(bus)
        return Outcome(before, call, streamed.reader, await streamed.usage(bus))


@pytest.fixture(params=["torch", "llama_cpp"])
def of_engine(request: pytest.FixtureRequest, outcomes: dict[str, list[Outcome]]) -> list[Outcome]:
    if request.param not in outcomes:
        pytest.skip("needs make gguf")
    return outcomes[request.param]


def test_another_worker_answers_every_request_of_one_killed_in_mid_text(
    of_engine: list[Outcome],
) -> None:
    assert len(of_engine) == IN_FLIGHT
    assert all(0 < outcome.before < len(outcome.call.output_ids) for outcome in of_engine)
    assert all(outcome.call.trainable for outcome in of_engine)
    assert len({outcome.call.text for outcome in of_engine}) > 1


def test_followers_that_resume_by_id_see_no_gap_and_no_repeat(
    of_engine: list[Outcome],
) -> None:
    for outcome in of_engine:
        assert outcome.read.text == outcome.call.text
        assert tuple(outcome.read.ids) == outcome.call.output_ids
        assert outcome.read.restarts == 0


def test_each_answer_is_in_the_ledger_once(of_engine: list[Outcome]) -> None:
    for outcome in of_engine:
        used = Counter(entry.call_id for entry in outcome.usage if not entry.discarded)
        assert used == {outcome.call.id: 1}

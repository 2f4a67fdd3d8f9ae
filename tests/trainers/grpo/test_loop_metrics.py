"""The metrics that Prometheus reads from a loop while it trains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from loopline.bus import Bus, BusSettings, WorkerPresence, live_workers
from loopline.testing import RedisProcess
from loopline.trainers.grpo.loop.command import counting
from loopline.trainers.grpo.loop.metrics import serve_training_metrics
from loopline.trainers.grpo.loop.report import RoundFacts
from loopline.trainers.grpo.loop.rounds import LoopWatch
from loopline.workers.settings import MetricsSettings
from tests.runtime.conftest import until

from .looped import Deployed, deployed_on, loop_settings, run_loop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def where(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    with deployed_on(_shared_servers, tmp_path_factory.mktemp("metrics")) as deployment:
        yield deployment


def trainers(settings: BusSettings) -> list[WorkerPresence]:
    """The trainers that report on the bus."""

    async def question() -> list[WorkerPresence]:
        async with Bus(settings) as bus:
            return [worker for worker in await live_workers(bus) if worker.kind == "trainer"]

    return asyncio.run(question())


def scrape(address: str) -> dict[tuple[str, str], float]:
    """Values by name and policy."""
    text = httpx.get(f"http://{address}/metrics").text
    return {
        (sample.name, sample.labels.get("policy", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


def test_a_loop_exports_its_progress_and_the_age_of_its_samples(
    where: Deployed, tmp_path: Path
) -> None:
    bus = where.settings.bus
    rounds: list[RoundFacts] = []
    with serve_training_metrics(MetricsSettings(enabled=True), bus) as metrics:
        watch = LoopWatch(round=lambda facts, _: rounds.append(facts))
        run_loop(
            loop_settings(where.base, rounds=2),
            tmp_path / "out",
            where.settings,
            counting(watch, metrics),
        )
        (trainer,) = until(lambda: trainers(bus), "word of the trainer")
        figures = scrape(trainer.details["metrics"])
    until(lambda: not trainers(bus), "the trainer's farewell")
    assert figures["loopline_trainer_steps_total", ""] == len(rounds) == 2
    steps = [facts.step for facts in rounds]
    assert figures["loopline_trainer_stale_groups_total", ""] == sum(step.stale for step in steps)
    policies = {name for step in steps for name in step.policies}
    assert policies
    for name in policies:
        learned = [step.policies[name] for step in steps if name in step.policies]
        groups = sum(count for step in learned for count in step.ages.values())
        ages = sum(age * count for step in learned for age, count in step.ages.items())
        assert figures["loopline_trainer_staleness_versions_count", name] == groups > 0
        assert figures["loopline_trainer_staleness_versions_sum", name] == ages
        tokens = sum(step.learned for step in learned)
        assert figures["loopline_trainer_tokens_total", name] == tokens > 0

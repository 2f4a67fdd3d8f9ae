"""Metrics that a loop serves to Prometheus while it runs, if its deployment serves metrics."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from loopline.bus import OUTAGE, Bus, BusError, BusSettings, WorkerPresence, announce
from loopline.bus.connection import pause_before
from loopline.runtime import __version__
from loopline.runtime.supervise.worker_name import worker_name
from loopline.trainers.grpo.report import StepFacts
from loopline.workers.messages import METRICS_ADDRESS
from loopline.workers.metrics import ProcessMetrics
from loopline.workers.settings import MetricsSettings

log = structlog.get_logger("loopline.trainers.grpo.loop.metrics")

TRAINER = "trainer"
VERSIONS = (0, 1, 2, 3, 4, 8, 16, 32)
"""Upper bounds of staleness."""


class TrainingMetrics:
    """The metrics of a training by GRPO."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._steps = Counter(
            "loopline_trainer_steps_total", "Optimizer steps of all policies.", registry=registry
        )
        self._staleness = Histogram(
            "loopline_trainer_staleness_versions", "By how many versions the weights that sampled a"
            " group lie behind those that learn from it.", ["policy"], buckets=VERSIONS,
            registry=registry,
        )  # fmt: skip
        self._too_old = Counter(
            "loopline_trainer_stale_groups_total", "Groups that were too old to be learned from.",
            registry=registry,
        )  # fmt: skip
        self._tokens = Counter(
            "loopline_trainer_tokens_total", "Tokens that were learned from.", ["policy"],
            registry=registry,
        )  # fmt: skip

    def step(self, facts: StepFacts) -> None:
        self._steps.inc()
        self._too_old.inc(facts.stale)
        for policy, policy_step in facts.policies.items():
            self._tokens.labels(policy).inc(policy_step.learned)
            for age, groups in policy_step.ages.items():
                for _ in range(groups):
                    self._staleness.labels(policy).observe(age)


@contextmanager
def serve_training_metrics(
    settings: MetricsSettings, bus: BusSettings
) -> Generator[TrainingMetrics]:
    """Serve on a free port within the block, and announce it on the bus, so that the supervisor of
    this machine lists the port for Prometheus. Redis may be away: training does not wait for it
    here. Raises OSError if the port can't be opened."""
    process = ProcessMetrics(settings, kind=TRAINER, version=__version__)
    figures = TrainingMetrics(process.registry)
    with ExitStack() as stack:
        process.serve()
        stack.callback(process.close)
        announcement = _Announcement(
            bus,
            WorkerPresence(
                name=worker_name(TRAINER), kind=TRAINER, version=__version__, state="ready",
                details={METRICS_ADDRESS: process.address},
            ),
        )  # fmt: skip
        stack.callback(announcement.end)
        yield figures


class _Announcement:
    """Presence announced from a separate thread: a training has no event loop that keeps
    running."""

    def __init__(self, bus: BusSettings, presence: WorkerPresence) -> None:
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(_announce(bus, presence))
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with closing(self._loop), suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    def end(self) -> None:
        with suppress(RuntimeError):  # it has ended, and its loop is closed
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout=5)


async def _announce(settings: BusSettings, presence: WorkerPresence) -> None:
    failures = 0
    while True:
        try:
            async with Bus(settings) as bus:
                await announce(bus, lambda: presence)
        except (BusError, *OUTAGE) as error:
            failures += 1
            if failures & (failures - 1) == 0:
                log.warning("training not announced", error=str(error), tries=failures)
        await asyncio.sleep(pause_before(failures))

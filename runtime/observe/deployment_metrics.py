"""Metrics of a whole deployment, read from its bus at each request, so that every gateway returns
the same values. Each process serves its own counters (`loopline.workers.metrics`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from loopline.bus import Bus, Policy, policies
from loopline.runtime.config.settings import Settings
from loopline.runtime.observe.status import Status, ask_bus, workers_by_heartbeat


class DeploymentMetrics:
    """Reads the bus once per scrape."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """Return body and content type in a format that the scraper accepts. Raises redis-py's
        errors in an outage: a failed scrape is visible, stale values aren't."""
        status = Status(phase="joined")
        await ask_bus(status, self._bus, self._settings)
        status.workers = await workers_by_heartbeat(self._bus)
        published = await policies.policies(self._bus)
        registry = CollectorRegistry()
        registry.register(_Figures(status, published, self._settings))
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type


class _Figures(Collector):
    def __init__(self, status: Status, published: Iterable[Policy], settings: Settings) -> None:
        self._status = status
        self._published = published
        self._settings = settings

    def collect(self) -> Iterator[Metric]:
        status = self._status
        for name, about in (
            ("waiting", "Messages that no worker has taken yet: the lag."),
            ("leased", "Messages that workers are processing."),
            ("delayed", "Retries that are not due yet."),
        ):
            family = GaugeMetricFamily(f"loopline_stream_{name}", about, labels=["stream"])
            for stream in status.streams:
                family.add_metric([stream.name], getattr(stream, name))
            yield family
        oldest = GaugeMetricFamily(
            "loopline_stream_oldest_waiting_seconds",
            "How long the first message that no worker has taken yet has waited.",
            labels=["stream"],
        )
        for stream in status.streams:
            oldest.add_metric([stream.name], stream.oldest_seconds)
        yield oldest
        for name, about, value in (
            ("runs_in_flight", "Runs that were admitted, have not ended and do not wait.",
             status.runs_in_flight),
            ("runs_queued", "Runs that wait for their turn.", status.runs_queued),
            ("runs_waits", "Waits of runs for a signal, an approval or a time.", status.waits),
            ("runs_unrecorded", "Ended runs that the recorder has not written yet.",
             status.unrecorded),
            ("dead_letters_stored", "Messages that were given up and are kept.",
             status.dead_letters),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"loopline_{name}", about, value=value)
        yield self._workers()
        for name in ("memory", "memory_limit"):
            if (value := status.redis.get(f"{name}_bytes")) is not None:
                about = (
                    "Memory of Redis in use."
                    if name == "memory"
                    else "Memory limit of Redis; 0: none."
                )
                yield GaugeMetricFamily(f"loopline_redis_{name}_bytes", about, value=value)
        versions = GaugeMetricFamily(
            "loopline_policy_published_version", "Version of a policy that workers should serve.",
            labels=["policy"],
        )  # fmt: skip
        for policy in self._published:
            versions.add_metric([policy.name], policy.current)
        yield versions

    def _workers(self) -> Metric:
        """Add zeros for configured kinds without a worker, so that their series are not absent."""
        counts = Counter((worker.kind, worker.state) for worker in self._status.workers)
        for kind, worker in self._settings.workers.items():
            if worker.count:
                counts.setdefault((kind, "ready"), 0)
        family = GaugeMetricFamily(
            "loopline_workers", "Workers with a heartbeat.",
            labels=["worker_kind", "state"],
        )  # fmt: skip
        for (kind, state), count in sorted(counts.items()):
            family.add_metric([kind, state], count)
        return family

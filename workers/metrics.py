"""Prometheus metrics of one worker process, served on a separate port.

Names have base units and end as Prometheus expects (`_total`, `_seconds`). Labels have few values:
streams, pools, workflows, outcomes; never a run, a caller or a text. This module is imported only
if metrics are enabled.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter as Count
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from loopline.agents.records import Call
from loopline.bus import Observer
from loopline.workers.engines.protocol import InProcessEngine
from loopline.workers.gpu import Pool
from loopline.workers.settings import MetricsSettings

SECONDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
"""Upper bounds of the buckets for times in seconds."""
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets for seconds per token."""
MICRO_DOLLARS = 1_000_000

# They double our series with the time at which each one started, which nobody queries.
disable_created_metrics()

Row = Mapping[str, Any]
"""A row of the store."""


class ProcessMetrics(Observer):
    """Counts of one process since it started. A thread answers scrapes, so they work even if the
    event loop is busy."""

    def __init__(self, settings: MetricsSettings, *, kind: str, version: str) -> None:
        self._settings = settings
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        Info("loopline_worker", "Kind and version of this process.", registry=registry).info(
            {"kind": kind, "version": version}
        )
        self._in_hand: Count[str] = Count()
        self._queued = Histogram(
            "loopline_message_queue_seconds", "Time that messages waited on their stream.",
            ["stream"], buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._handled = Histogram(
            "loopline_message_handling_seconds", "Time that messages were handled; on a role's"
            " stream, the time of steps.", ["stream"], buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._retries = self._counter("retries", "Failed deliveries that are retried.")
        self._leases_lost = self._counter(
            "leases_lost", "Deliveries that another worker took over."
        )
        self._taken_over = self._counter(
            "leases_taken_over", "Deliveries taken over from workers that had died or stalled."
        )
        self._dead = self._counter("dead_letters", "Messages that this process gave up.")
        registry.register(_InHand(self._in_hand))
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self.address = ""
        """host:port under which others reach it, once it is serving."""

    @cached_property
    def engines(self) -> EngineMetrics:
        """Metrics of a process that hosts pools."""
        return EngineMetrics(self.registry)

    def store_metrics(self, priced_pools: Iterable[str]) -> StoreMetrics:
        """Make the metrics of a recorder; call it once."""
        return StoreMetrics(self.registry, priced_pools)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"loopline_{name}_total", about, ["stream"], registry=self.registry)

    # Events of the bus.

    def begun(self, stream: str, queued: float) -> None:
        self._in_hand[stream] += 1
        self._queued.labels(stream).observe(queued)

    def handled(self, stream: str, seconds: float) -> None:
        self._in_hand[stream] -= 1
        self._handled.labels(stream).observe(seconds)

    def retried(self, stream: str) -> None:
        self._retries.labels(stream).inc()

    def lease_lost(self, stream: str) -> None:
        self._leases_lost.labels(stream).inc()

    def lease_taken_over(self, stream: str) -> None:
        self._taken_over.labels(stream).inc()

    def dead_lettered(self, stream: str) -> None:
        self._dead.labels(stream).inc()

    # The port.

    def serve(self) -> None:
        """Start listening. Raises OSError with the address and the remedy."""
        host, port = self._settings.host, self._settings.port
        try:
            server, thread = start_http_server(port, host, registry=self.registry)
        except OSError as error:
            raise OSError(
                error.errno,
                f"metrics can't be served ({error.strerror}): metrics.host must be an address of"
                " this machine, and metrics.port=0 takes a free port",
                f"{host}:{port}",
            ) from error
        self._server = server, thread
        if isinstance(server, ThreadingMixIn):
            server.daemon_threads = True  # a stalled scrape does not delay the exit
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        self.address = f"{f'[{name}]' if ':' in name else name}:{server.server_port}"

    def close(self) -> None:
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join(timeout=5)
            self._server = None


class _InHand(Collector):
    def __init__(self, counts: Count[str]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "loopline_messages_in_hand", "Messages that are being handled.", labels=["stream"]
        )
        for stream, count in list(self._counts.items()):
            family.add_metric([stream], count)
        yield family


class EngineMetrics(Collector):
    """Metrics of a process's pools: counts as a `loopline.workers.gpu.PoolObserver`, and the
    engines' own figures, read at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pools: list[Pool] = []
        self._first_token = Histogram(
            "loopline_engine_time_to_first_token_seconds", "Time from the request to the first"
            " token.", ["pool"], buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._token = Histogram(
            "loopline_engine_time_per_output_token_seconds", "Decoding time of a completion per"
            " token after the first.", ["pool"], buckets=TOKEN_SECONDS, registry=registry,
        )  # fmt: skip
        self._errors = Counter(
            "loopline_engine_errors_total", "Requests that the engine could not answer.",
            ["pool", "kind"], registry=registry,
        )  # fmt: skip
        self._shared = Counter(
            "loopline_engine_coalesced_total", "Requests answered by the call of an equal request.",
            ["pool"], registry=registry,
        )  # fmt: skip
        self._hedges = Counter(
            "loopline_engine_hedges_total", "Second requests that were sent, by which request"
            " was answered first.", ["pool", "winner"], registry=registry,
        )  # fmt: skip
        registry.register(self)

    def add(self, pool: Pool) -> None:
        """Count this pool's events."""
        self._pools.append(pool)
        pool.observer = self

    def answered(self, pool: str, calls: Sequence[Call]) -> None:
        for call in calls:
            self._first_token.labels(pool).observe(call.latency.first_token)
            if call.usage.completion > 1:
                self._token.labels(pool).observe(call.latency.decode / (call.usage.completion - 1))

    def failed(self, pool: str, kind: str) -> None:
        self._errors.labels(pool, kind).inc()

    def shared(self, pool: str) -> None:
        self._shared.labels(pool).inc()

    def hedged(self, pool: str, winner: str) -> None:
        self._hedges.labels(pool, winner or "none").inc()

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        pools = list(self._pools)
        for name, about, attribute in (
            ("requests", "Requests that were answered completely.", "calls"),
            ("prompt_tokens", "Prompt tokens of answered requests.", "prompt_tokens"),
            ("completion_tokens", "Tokens generated for answers.", "completion_tokens"),
            ("abandoned_tokens", "Tokens generated for abandoned requests.",
             "abandoned_tokens"),
        ):  # fmt: skip
            counter = CounterMetricFamily(f"loopline_engine_{name}", about, labels=["pool"])
            for pool in pools:
                counter.add_metric([pool.name], getattr(pool.engine.totals(), attribute))
            yield counter
        breakers = GaugeMetricFamily(
            "loopline_engine_breaker_open", "1 while the endpoint gets no requests, as far as this"
            " process knows; shared: whether all workers share this state.",
            labels=["pool", "shared"],
        )  # fmt: skip
        for pool in pools:
            if pool.fallbacks:
                breaker = pool.breaker
                breakers.add_metric([pool.name, str(breaker.is_shared).lower()], breaker.is_open)
        yield breakers
        yield from _occupancy(pools)
        versions = GaugeMetricFamily(
            "loopline_policy_served_version", "Served version of a policy.",
            labels=["policy"],
        )  # fmt: skip
        for pool in pools:
            for policy, state in pool.policies.state().items():
                version = state["version"]
                if isinstance(version, int):
                    versions.add_metric([policy], version)
        yield versions


def _occupancy(pools: Sequence[Pool]) -> Iterator[Metric]:
    """Occupancy of the engines in this process; the occupancy of endpoints is unknown here."""
    batch, waiting, tokens, capacity = (
        GaugeMetricFamily(f"loopline_engine_{name}", about, labels=["pool"])
        for name, about in (
            ("batch_size", "Completions that the next pass works on."),
            ("waiting_requests", "Requests that the engine has not admitted yet."),
            ("kv_tokens", "Tokens of the batch whose keys and values are in memory."),
            ("kv_capacity_tokens", "Tokens that the cache has room for, if it is limited."),
        )
    )
    for pool in pools:
        if isinstance(pool.engine, InProcessEngine):
            state = pool.engine.occupancy()
            batch.add_metric([pool.name], state.rows)
            waiting.add_metric([pool.name], state.waiting)
            tokens.add_metric([pool.name], state.kv_tokens)
            if state.kv_capacity is not None:
                capacity.add_metric([pool.name], state.kv_capacity)
    yield from (batch, waiting, tokens, capacity)


class StoreMetrics:
    """Counts of a recorder's rows: the ended runs and the ledger of the whole deployment, each row
    once, regardless of the process that did the work."""

    def __init__(self, registry: CollectorRegistry, priced: Iterable[str]) -> None:
        """`priced`: pools that have a price. The cost of other pools' calls is unknown."""
        self._priced = frozenset(priced)
        self._runs = Counter(
            "loopline_runs_total", "Runs that ended.", ["workflow", "outcome"], registry=registry
        )
        self._run_seconds = Histogram(
            "loopline_run_seconds", "Time of runs from admission to end.", ["workflow"],
            buckets=(*SECONDS, 1800.0, 3600.0), registry=registry,
        )  # fmt: skip
        self._calls, self._unpriced, self._unknown, self._dollars = (
            Counter(f"loopline_{name}_total", about, ["pool"], registry=registry)
            for name, about in (
                ("calls", "Model calls in the ledger."),
                ("calls_without_price", "Calls of pools without a price: their cost is unknown."),
                ("calls_of_unknown_usage", "Calls of unknown usage: they may have been billed."),
                ("cost_dollars", "Cost of calls by the prices of their pools."),
            )
        )
        self._tokens = Counter(
            "loopline_tokens_total", "Tokens of calls, as providers and engines counted them.",
            ["pool", "kind"], registry=registry,
        )  # fmt: skip

    def runs(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._runs.labels(row["workflow"], row["outcome"]).inc()
            self._run_seconds.labels(row["workflow"]).observe(max(0, row["ended"] - row["created"]))

    def usage(self, rows: Iterable[Row]) -> None:
        for row in rows:
            pool: str = row["policy"]
            self._calls.labels(pool).inc()
            if row["unknown"] is not None:
                self._unknown.labels(pool).inc()
                continue
            for kind in ("prompt", "cached", "completion", "reasoning"):
                self._tokens.labels(pool, kind).inc(row[f"{kind}_tokens"] or 0)
            if pool in self._priced:
                self._dollars.labels(pool).inc(row["cost_micro_dollars"] / MICRO_DOLLARS)
            else:
                self._unpriced.labels(pool).inc()

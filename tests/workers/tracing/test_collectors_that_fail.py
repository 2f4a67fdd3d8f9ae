"""A collector that is absent or refuses: runs don't notice, and deliverable spans arrive later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

pytest.importorskip("opentelemetry.proto", reason="needs make install")

from loopline.bus import Bus, LogConsumer
from loopline.testing import RedisProcess
from loopline.workers.settings import RecorderSettings, TracingSettings
from loopline.workers.tracing.exporter import TraceExporter, trace_readers
from tests.bus.serving import until
from tests.conftest import quick_settings
from tests.workers.tracing.collector import collecting
from tests.workers.tracing.recorded import RUN_ID, run, step, trajectory

COUNT = 7
"""Return spans of the trajectory."""


async def publish(bus: Bus, run_id: str = RUN_ID) -> None:
    """Record that a run has ended."""
    steps = (step(run_id=run_id),)
    record = trajectory(*steps, run=run(id=run_id))
    journal = b"[" + b",".join(part.model_dump_json().encode() for part in steps) + b"]"
    fields: dict[bytes | str, bytes | str] = {
        "run_id": record.run.id, "run": record.run.model_dump_json(), "steps": journal,
        "outcome": "answered", "answer": "42", "reason": "", "ended": "106000", "generation": "0",
    }  # fmt: skip
    await bus.redis.xadd(bus.keys.shard(0).trajectories, fields)  # pyright: ignore[reportArgumentType]


class Running:
    """A recorder's readers in this process."""

    def __init__(self, bus: Bus, url: str | None, **changes: float) -> None:
        tracing = TracingSettings.model_validate({"endpoint": url, **changes})
        self._settings = RecorderSettings(bus=bus.settings, store=Path("none"), tracing=tracing)
        self._bus = bus
        self._tasks: list[asyncio.Task[None]] = []
        self._readers: list[LogConsumer] = []
        self.exporter: TraceExporter | None = None

    async def __aenter__(self) -> Running:
        self._context = trace_readers(self._bus, self._settings)
        traces = await self._context.__aenter__()
        self._readers, self.exporter = traces.readers, traces.exporter
        self._tasks = [asyncio.create_task(reader.run()) for reader in traces.readers]
        return self

    async def __aexit__(self, *exception: object) -> None:
        for reader in self._readers:
            reader.drain()
        await asyncio.wait_for(asyncio.gather(*self._tasks), 20)
        await self._context.__aexit__(None, None, None)


async def waiting(bus: Bus) -> int:
    return await bus.redis.xlen(bus.keys.shard(0).trajectories)


async def test_traces_wait_for_an_absent_collector_and_the_log_reports_it_once(bus: Bus) -> None:
    with collecting() as collector:
        collector.status = 503
        with capture_logs() as logs:
            async with Running(bus, collector.url):
                await publish(bus)
                await until(lambda: collector.requests >= 3, "attempts")
                assert await waiting(bus) == 1
                collector.status = 200
                await until(lambda: len(collector.spans) == COUNT, "spans")
    events = [line["event"] for line in logs if line["log_level"] in ("error", "info")]
    assert events == [
        "the trace collector can't be reached: runs continue, their traces wait",
        "the trace collector can be reached again",
    ]
    assert await waiting(bus) == 0


async def test_traces_are_dropped_and_counted_when_no_collector_comes_for_long(bus: Bus) -> None:
    async with Running(bus, "http://127.0.0.1:9", keep_seconds=0.0) as running:
        await publish(bus)
        exporter = running.exporter
        assert exporter is not None
        await until(lambda: exporter.dropped == COUNT, "spans dropped")

    assert await waiting(bus) == 0


async def test_a_refused_trace_costs_no_other_of_its_batch(bus: Bus) -> None:
    others = ["01a0c450-6c78-762c-82ca-3decceec41a2", "01a0c450-6c78-762c-82ca-3decceec41a3"]
    with collecting() as collector:
        for run_id in (RUN_ID, *others):
            await publish(bus, run_id)
        collector.refuses = bytes.fromhex(RUN_ID.replace("-", ""))
        async with Running(bus, collector.url) as running:
            exporter = running.exporter
            assert exporter is not None
            wanted = {run_id.replace("-", "") for run_id in others}
            await until(lambda: {span.trace_id for span in collector.spans} == wanted, "the others")
            await until(lambda: exporter.dropped == COUNT, "the one that was refused")


async def test_refused_spans_are_not_resent_forever(bus: Bus) -> None:
    with collecting() as collector:
        collector.status = 400
        async with Running(bus, collector.url) as running:
            await publish(bus)
            exporter = running.exporter
            assert exporter is not None
            await until(lambda: exporter.dropped == COUNT, "spans refused")
            collector.status = 200
            await publish(bus)
            await until(lambda: exporter.sent == COUNT, "spans of the next run")
    assert collector.requests == 2


async def test_a_recorder_that_stopped_tracing_does_not_block_trimming(
    bus: Bus,
) -> None:
    with collecting() as collector:
        async with Running(bus, collector.url):
            await publish(bus)
            await until(lambda: len(collector.spans) == COUNT, "spans")
    await publish(bus)
    assert await waiting(bus) == 1
    async with Running(bus, None):

        async def trimmed() -> bool:
            return await waiting(bus) == 0

        await until(trimmed, "entry that nobody traces")


async def test_a_header_from_the_environment_reaches_the_collector(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTOR_KEY", "Basic abc")
    with collecting() as collector:
        tracing = {"headers_env": {"Authorization": "COLLECTOR_KEY"}}
        async with Running(bus, collector.url, **tracing):  # pyright: ignore[reportArgumentType]
            await publish(bus)
            await until(lambda: bool(collector.spans), "spans")
    assert collector.headers[0]["authorization"] == "Basic abc"


async def test_a_recorder_that_starts_while_redis_restarts_waits_for_it(
    own_server: RedisProcess,
) -> None:
    async with Bus(quick_settings(own_server.url)) as bus:
        await publish(bus)
        own_server.kill()
        running = Running(bus, None)
        with capture_logs() as logs:
            starting = asyncio.create_task(running.__aenter__())
            await until(lambda: any(line["event"] == "redis away" for line in logs), "an outage")
        own_server.start()
        async with asyncio.timeout(20):
            await starting
        await running.__aexit__()

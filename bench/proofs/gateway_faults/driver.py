"""One attack on gateways, from start to evidence."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from loopline.agents.records import Message, SamplingParams
from loopline.bench.errors import BenchError
from loopline.bench.proofs.faults.attacks import Attack, Scene
from loopline.bench.proofs.faults.attacks.processes import Kill, Stop
from loopline.bench.proofs.faults.attacks.server import FreezeRedis, RestartRedis
from loopline.bench.proofs.faults.chaos import Chaos
from loopline.bench.proofs.faults.collection import gather
from loopline.bench.proofs.faults.evidence import Evidence
from loopline.bench.proofs.faults.fleet import CONCURRENCY, STORE, Fleet, Slot
from loopline.bench.proofs.faults.load import question
from loopline.bench.proofs.faults.monitor import LOOK_SECONDS, Monitor
from loopline.bench.proofs.faults.settings import LEASE_SECONDS, bus_settings
from loopline.bench.proofs.gateway_faults.caller import Callers, Receipt
from loopline.bench.proofs.gateway_process import Gateway, api_key, gateway_in
from loopline.bus import Bus
from loopline.runtime.supervise.listener import GATEWAY
from loopline.testing import WORKER, RedisProcess
from loopline.workers.engines.faults import FaultPlan
from loopline.workers.engines.scripted.engine import reply_seed
from loopline.workers.engines.scripted.script import scripted_reply
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.messages import inference_stream, role_stream
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from loopline.workers.settings import (
    GpuWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    WorkerSettings,
)

ENDPOINT, LOCAL = "llm", "slm"
"""Pool behind the endpoint that keeps books, and pool whose engine continues from ids."""
LOCAL_SHARE = 0.3
WORK = (role_stream("chat"), *(inference_stream(pool) for pool in (ENDPOINT, LOCAL)))
FLEET = (GATEWAY, GATEWAY, "gpu", "gpu", "recorder")
LATENCY_SECONDS, TOKENS_PER_SECOND = 0.1, 60.0
RUN_SECONDS = 6 * 3600.0
COMMITS = (0.0, 30.0)
"""Range of the least number of commits between two attacks, drawn from it."""
ATTACKS: tuple[type[Attack], ...] = (Kill, Stop, RestartRedis, FreezeRedis)
WEIGHTS = {"kill": 45, "stop": 30, "redis": 15, "redis_stop": 10}
IN_FLIGHT = 128
START_SECONDS = 180.0


@dataclass
class Result:
    """Evidence of an attack."""

    evidence: Evidence
    receipts: list[Receipt]
    expected: Mapping[str, str]
    """Text of the answer by key."""
    answer_counts: Mapping[str, int]
    """Number of answers that the endpoint has sent, by hash of the question."""
    injected: Counter[str]
    seconds: float
    asked_of_endpoint: int = 0


@dataclass(frozen=True)
class AttackSettings:
    """Settings of an attack."""

    streams: int
    """Number of streams, and also of plain calls."""
    seed: int
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    appendfsync: Literal["always", "everysec"] = "always"


def receipts_of(settings: AttackSettings) -> list[Receipt]:
    """Return the calls, streams and plain calls mixed: each question is asked only once."""
    source = random.Random(settings.seed)
    streams = [True] * settings.streams + [False] * settings.streams
    source.shuffle(streams)
    return [
        Receipt(
            key=f"call-{settings.seed}-{index}",
            prompt=f"Question {index}. {question(source)[0]}",
            seed=index,
            model=LOCAL if source.random() < LOCAL_SHARE else ENDPOINT,
            stream=stream,
        )
        for index, stream in enumerate(streams)
    ]


def expected_text(receipt: Receipt) -> str:
    """Text of the script for a call, the same on both engines."""
    seed = reply_seed(SamplingParams(seed=receipt.seed), 0)
    return scripted_reply([Message(role="user", content=receipt.prompt)], seed=seed).text


async def attack(folder: Path, settings: AttackSettings, progress: Callable[[str], None]) -> Result:
    """Raises `BenchError` if a process can't be started or never drains."""
    began = time.monotonic()
    receipts = receipts_of(settings)
    server = RedisProcess(folder / "redis", persistence=settings.appendfsync, listen="tcp")
    faults = FaultPlan(seed=settings.seed, server_error=0.01, truncated_stream=0.005)
    async with ScriptedServer(
        ServerOptions(
            latency_seconds=LATENCY_SECONDS, tokens_per_second=TOKENS_PER_SECOND,
            idempotent=True, faults=faults,
        )
    ) as endpoint:  # fmt: skip
        gateways = _gateways(folder, models_of(endpoint.url), len(FLEET))
        fleet = _fleet(folder, server, endpoint.url, gateways)
        monitor = Monitor(fleet, WORK)
        scene = Scene(fleet, server, monitor, LEASE_SECONDS)
        chaos = Chaos(settings.seed, scene, settings.weights, COMMITS, ATTACKS)
        key = api_key(folder)
        addresses = [gateways[slot.index].url for slot in fleet.slots if slot.kind == GATEWAY]
        callers = Callers(addresses, key, settings.seed, IN_FLIGHT)
        async with fleet.running_on(server), Bus(bus_settings(server.url)) as bus:
            await _all_ready(bus, monitor)
            await _under_attack(bus, callers, receipts, chaos, monitor, progress)
            consumers = await monitor.wait_until_idle(bus)
            alive = [slot.name for slot in fleet.slots]
            await fleet.drain()
            evidence = await gather(
                bus,
                folder / STORE,
                seed=settings.seed,
                accepted=[run.removeprefix("chatcmpl-") for r in receipts for run in r.runs],
                keys_without_ttl=sorted(monitor.keys_without_ttl),
                live_consumers=consumers,
                live_workers=alive,
                work=WORK,
            )
            kept_for_ever = {bus.keys.api_keys}
        evidence = evidence.model_copy(
            update={
                "died": monitor.died,
                "billed": endpoint.served.answers_by_id(),
                "keys_without_ttl": [
                    name for name in evidence.keys_without_ttl if name not in kept_for_ever
                ],
            }
        )
        return Result(
            evidence=evidence,
            receipts=receipts,
            expected={receipt.key: expected_text(receipt) for receipt in receipts},
            answer_counts=endpoint.served.answers_by_content(),
            injected=chaos.injected,
            seconds=time.monotonic() - began,
            asked_of_endpoint=endpoint.served.arrivals,
        )


async def _all_ready(bus: Bus, monitor: Monitor) -> None:
    until = time.monotonic() + START_SECONDS
    while len(monitor.ready) < len(FLEET):
        await monitor.look(bus)
        if monitor.died or time.monotonic() > until:
            why = "; ".join(monitor.died) or f"only {', '.join(monitor.ready) or 'none'} came up"
            raise BenchError(f"the deployment does not start: {why}")
        await asyncio.sleep(LOOK_SECONDS)


async def _under_attack(
    bus: Bus,
    callers: Callers,
    receipts: Sequence[Receipt],
    chaos: Chaos,
    monitor: Monitor,
    progress: Callable[[str], None],
) -> None:
    enough = asyncio.Event()
    limit = 240.0 + 2.0 * len(receipts)

    async def watch() -> None:
        looks = 0
        while True:
            await monitor.look(bus)
            if looks % 20 == 0:
                progress(f"{callers.done} of {len(receipts)} calls answered")
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)

    injecting = asyncio.create_task(chaos.run(enough))
    watching = asyncio.create_task(watch())
    asking = asyncio.create_task(callers.ask_all(receipts, limit))
    try:
        # A failing watcher is an error of the bench, and waiting would not help.
        await asyncio.wait({watching, asking}, return_when=asyncio.FIRST_COMPLETED)
        (watching if watching.done() else asking).result()
    finally:
        enough.set()
        await injecting
        for task in (watching, asking):
            task.cancel()
        await asyncio.gather(watching, asking, return_exceptions=True)


def models_of(endpoint: str) -> dict[str, ModelSettings]:
    """Return one pool behind the endpoint, and one whose engine continues from the ids of a dead
    worker."""
    remote = {
        "engine": "openai", "model": "scripted-llm", "base_url": endpoint,
        "price": {"prompt": 2.5, "completion": 10}, "backoff_seconds": 0.1, "max_concurrency": 256,
    }  # fmt: skip
    local = {
        "engine": "scripted",
        "model": "scripted-slm",
        "scripted": {"latency_seconds": LATENCY_SECONDS, "tokens_per_second": TOKENS_PER_SECOND},
    }
    return {
        ENDPOINT: ModelSettings.model_validate(remote),
        LOCAL: ModelSettings.model_validate(local),
    }


def _gateways(folder: Path, models: Mapping[str, ModelSettings], slots: int) -> list[Gateway]:
    """Gateways with distinct addresses, as on several machines; a gateway's successor takes its
    address."""
    return [
        gateway_in(folder, f"gateway{index}", models, run_seconds=RUN_SECONDS)
        for index in range(slots)
    ]


def _fleet(folder: Path, server: RedisProcess, endpoint: str, gateways: Sequence[Gateway]) -> Fleet:
    bus = bus_settings(server.url)

    def settings_of(slot: Slot) -> WorkerSettings:
        match slot.kind:
            case "gateway":
                models = models_of(endpoint)
                return RoleWorkerSettings(
                    bus=bus, name=slot.name, roles=("chat",), concurrency=2 * CONCURRENCY,
                    # Every second gateway calls the endpoint itself, which is the default for all.
                    models={ENDPOINT: models[ENDPOINT]} if slot.index % 2 == 0 else {},
                )  # fmt: skip
            case "gpu":
                return GpuWorkerSettings(bus=bus, name=slot.name, models=models_of(endpoint))
            case _:
                return RecorderSettings(
                    bus=bus, name=slot.name, store=folder / STORE, linger_seconds=0.2
                )

    def launch(slot: Slot) -> Sequence[str]:
        if slot.kind != GATEWAY:
            return WORKER
        return gateways[slot.index].command

    return Fleet(FLEET, folder, settings_of, launch)

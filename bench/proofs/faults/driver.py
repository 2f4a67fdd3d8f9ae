"""One attack on the bench's own processes, from start to evidence: admit, inject faults, follow,
come to rest, drain, collect."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from loopline.bench.proofs.faults.attacks import WEIGHTS, Scene
from loopline.bench.proofs.faults.chaos import Chaos
from loopline.bench.proofs.faults.collection import WORK_STREAMS, gather
from loopline.bench.proofs.faults.evidence import Evidence
from loopline.bench.proofs.faults.fleet import (
    STORE,
    Slot,
    delegate_fleet,
    endpoint_options,
    models_of,
)
from loopline.bench.proofs.faults.followers import Followers
from loopline.bench.proofs.faults.load import RunLoad
from loopline.bench.proofs.faults.monitor import Monitor
from loopline.bench.proofs.faults.proxy import Proxy
from loopline.bench.proofs.faults.resources import Clocks, FarMachine, far_machine, small_disk
from loopline.bench.proofs.faults.settings import FAST, Times
from loopline.bus import Bus
from loopline.runtime.client.client import Client
from loopline.testing import Persistence, RedisProcess
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.scripted_api import ScriptedServer

COMMITS = (0.0, 60.0)
"""Range of the least number of commits between two attacks, drawn from it: 2,000 runs get about 200
attacks, even if a slow machine recovers slowly from each."""
FOLLOW_SECONDS = 30.0
"""Seconds that followers get after the last run has ended."""


@dataclass(frozen=True, slots=True)
class Attack:
    """Evidence of one attack."""

    evidence: Evidence
    injected: Counter[str]
    unable: dict[str, str]
    """Reason why an attack could not be made here, by attack."""
    seconds: float


@dataclass(frozen=True, slots=True)
class AttackSettings:
    """Settings of an attack."""

    runs: int
    seed: int
    workers: int = 6
    rate: float = 20.0
    persistence: Persistence = "always"
    times: Times = FAST
    weights: Mapping[str, int] | None = None
    """Weight by attack; None means all attacks, an empty mapping none."""


class Driver:
    """Runs one attack in `folder`."""

    def __init__(
        self, folder: Path, settings: AttackSettings, progress: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._weights = WEIGHTS if settings.weights is None else settings.weights
        self._load = RunLoad(
            runs=settings.runs,
            seed=settings.seed,
            rate=settings.rate,
            run_seconds=settings.times.run_seconds,
            progress=progress,
        )

    async def run(self) -> Attack:
        """Raises `BenchError` if a process can't be started or never drains."""
        began = time.monotonic()
        settings, load = self._settings, self._load
        async with self._scene() as (scene, endpoint):
            assert scene.proxy is not None
            chaos = Chaos(settings.seed, scene, self._weights, COMMITS)
            direct = settings.times.bus(scene.server.url)
            through = settings.times.bus(scene.proxy.url)
            async with (
                scene.fleet.running_on(scene.server),
                Bus(direct) as bus,
                Client.connect(through) as client,
            ):
                followers = Followers(client.bus, settings.seed)
                await self._under_attack(bus, client, chaos, scene, followers)
                followed = await followers.done(FOLLOW_SECONDS)
                consumers = await scene.monitor.wait_until_idle(bus)
                alive = [slot.name for slot in scene.fleet.slots]
                await scene.fleet.drain()
                evidence = await gather(
                    bus,
                    self._folder / STORE,
                    seed=settings.seed,
                    accepted=load.accepted,
                    keys_without_ttl=sorted(scene.monitor.keys_without_ttl),
                    live_consumers=consumers,
                    live_workers=alive,
                )
            evidence = evidence.model_copy(
                update={
                    "died": scene.monitor.died,
                    "expected": load.expected,
                    "followed": followed,
                    "billed": endpoint.served.answers_by_id(),
                }
            )
        return Attack(evidence, chaos.injected, chaos.unable, time.monotonic() - began)

    async def _under_attack(
        self, bus: Bus, client: Client, chaos: Chaos, scene: Scene, followers: Followers
    ) -> None:
        enough = asyncio.Event()
        injecting = asyncio.create_task(chaos.run(enough))
        try:
            await self._load.run_until_ended(
                bus, client, followers, lambda: scene.monitor.look(bus)
            )
        finally:
            enough.set()
            await injecting

    @asynccontextmanager
    async def _scene(self) -> AsyncGenerator[tuple[Scene, ScriptedServer]]:
        """Yield everything that is attacked, with the means for the attacks that work on this
        machine."""
        settings, missing = self._settings, dict[str, str]()
        async with AsyncExitStack() as stack:
            disk = stack.enter_context(small_disk(self._folder / "redis"))
            if isinstance(disk, str):
                missing["disk"], disk = disk, None
            far = stack.enter_context(far_machine())
            if isinstance(far, str):
                missing["far"], far = far, None
            server = RedisProcess(
                self._folder / "redis",
                persistence=settings.persistence,
                listen="tcp",
                also_at=far.address if far else "",
            )
            proxy = await stack.enter_async_context(Proxy(server.url))
            endpoint = await stack.enter_async_context(
                ScriptedServer(endpoint_options(settings.seed))
            )
            clocks = Clocks(self._folder, settings.workers)

            def launch(slot: Slot) -> tuple[str, ...]:
                there = far.prefix if far and _is_far(slot) else ()
                clock = str(clocks.paths[slot.index])
                return (*there, *OWN_PYTHON, "-m", "loopline.bench.proofs.faults.worker", clock)

            fleet = delegate_fleet(
                settings.workers,
                lambda slot: settings.times.bus(_redis_url(slot, server, proxy, far)),
                models_of(settings.seed, endpoint.url),
                self._folder,
                launch,
            )
            monitor = Monitor(fleet, WORK_STREAMS)
            lease = settings.times.bus(server.url).lease_seconds
            yield Scene(fleet, server, monitor, lease, proxy, disk, clocks, far, missing), endpoint


def _is_far(slot: Slot) -> bool:
    """Whether it is in the namespace, from which the endpoint is unreachable."""
    return slot.kind != "gpu" and slot.index % 3 == 2


def _redis_url(slot: Slot, server: RedisProcess, proxy: Proxy, far: FarMachine | None) -> str:
    """URL of Redis over the link, through the proxy, or directly."""
    if far and _is_far(slot):
        return f"redis://{far.address}:{server.port}/0"
    return server.url if slot.kind == "recorder" else proxy.url

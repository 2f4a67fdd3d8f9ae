"""An attack on the real `runtime up`: its supervisor is killed with SIGKILL, which also kills Redis
and every worker, and is restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from loopline.bench.errors import BenchError
from loopline.bench.proofs.faults.attacks.base import wait_with_timeout
from loopline.bench.proofs.faults.collection import (
    WORK_STREAMS,
    gather,
    log_keys,
    stream_states,
    work_keys,
)
from loopline.bench.proofs.faults.driver import FOLLOW_SECONDS, Attack
from loopline.bench.proofs.faults.followers import Followers
from loopline.bench.proofs.faults.load import RunLoad
from loopline.bus import OUTAGE, Bus, BusSettings, live_workers
from loopline.bus.connection import retry_during_outage
from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import load_resolved_file
from loopline.runtime.config.state import StateDirectory
from loopline.testing import RedisProcess
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent

NAME = "supervisor"
ABOUT = "SIGKILL of the supervisor of `runtime up`; another one starts"
RATE = 5.0
RUN_SECONDS = 6 * 3600.0
LIFE_COMMITS = (1.0, 40.0)
"""Range of the steps that are committed in one life of the supervisor: on a slow machine, where
workers start slowly, they must make progress too."""
LIFE_SECONDS = (0.0, 2.0)
"""Range of the seconds after that until it is killed."""
START_SECONDS = DOWN_SECONDS = 300.0
REST_SECONDS = 120.0
_PAUSE = 0.1

PROFILE = """\
extends = "scripted"

[bus]
history = true
lease_seconds = 2.0
max_attempts = 100

[models.llm.scripted]
latency_seconds = 0.1
tokens_per_second = 400

[models.slm.scripted]
latency_seconds = 0.1
tokens_per_second = 400
"""


class Deployment:
    """`runtime up` in a folder, with the state that outlives it."""

    def __init__(
        self, folder: Path, profile: str = PROFILE, variables: Mapping[str, str] | None = None
    ) -> None:
        """Create a deployment. `profile`: the text of its file; `variables`: additional environment
        variables."""
        folder.mkdir(parents=True, exist_ok=True)
        self.state = StateDirectory(folder / "state")
        self.died: list[str] = []
        self._variables = dict(variables or {})
        self._profile = folder / "profile.toml"
        self._profile.write_text(profile)
        self._log = folder / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it. Raises `BenchError` if it does not start."""
        self._process = self._spawn()
        until = time.monotonic() + START_SECONDS
        while self.state.running() is None:
            ended = self._process.poll()
            if ended is not None or time.monotonic() > until:
                how = f"is not up after {START_SECONDS:g} s" if ended is None else f"ended: {ended}"
                raise BenchError(f"runtime up {how}; its log is {self._log}")
            await asyncio.sleep(_PAUSE)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*OWN_PYTHON, "-m", "loopline.runtime", "up", "--profile", str(self._profile)],
                env={**os.environ, **self._variables, "LOOPLINE_STATE": str(self.state.path)},
                stdout=log,
                stderr=log,
                preexec_fn=dies_with_parent(signal.SIGKILL),
            )

    def settings(self) -> BusSettings:
        """Settings with which to reach the deployment."""
        run = self.state.running()
        assert run is not None
        bus = load_resolved_file(self.state.resolved).bus
        return bus.model_copy(update={"redis_url": run.redis_url})

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            self.died.append(f"the supervisor, code {self._process.returncode}")
        self._process.kill()
        self._process.wait()
        self._process = None

    async def down(self) -> None:
        """Send SIGTERM, and wait until it has drained. Raises `BenchError` if it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, DOWN_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchError(f"runtime up does not drain; its log is {self._log}") from None
        self._process = None


async def attack(folder: Path, runs: int, seed: int, progress: Callable[[str], None]) -> Attack:
    """Raises `BenchError` if the deployment can't be started or never drains."""
    began = time.monotonic()
    load = RunLoad(runs=runs, seed=seed, rate=RATE, run_seconds=RUN_SECONDS, progress=progress)
    deployment, injected = Deployment(folder), Counter[str]()
    await deployment.start()
    try:
        settings = deployment.settings()
        async with Bus(settings) as bus, Client.connect(settings) as client:
            followers, enough = Followers(client.bus, seed), asyncio.Event()
            injecting = asyncio.create_task(_inject(bus, deployment, seed, enough, injected))
            try:
                await load.run_until_ended(bus, client, followers, _no_watchers)
            finally:
                enough.set()
                await injecting
            followed = await followers.done(FOLLOW_SECONDS)
            await _wait_until_idle(bus)
        await deployment.down()
    finally:
        deployment.kill()
    server = RedisProcess(deployment.state.redis, persistence="everysec", listen="tcp")
    await asyncio.to_thread(server.start)
    try:
        async with Bus(settings.model_copy(update={"redis_url": server.url})) as bus:
            evidence = await gather(
                bus,
                deployment.state.store,
                seed=seed,
                accepted=load.accepted,
                keys_without_ttl=[],
                live_consumers=[],
                live_workers=[],
            )
    finally:
        server.kill()
    observations = {"died": deployment.died, "expected": load.expected, "followed": followed}
    return Attack(evidence.model_copy(update=observations), injected, {}, time.monotonic() - began)


async def _inject(
    bus: Bus, deployment: Deployment, seed: int, enough: asyncio.Event, injected: Counter[str]
) -> None:
    lives, work = random.Random(seed), _Work(bus)
    while not enough.is_set():
        commits = await work.commits() + lives.uniform(*LIFE_COMMITS)
        while not enough.is_set() and await work.commits() < commits:
            await wait_with_timeout(enough, _PAUSE)
        await wait_with_timeout(enough, lives.uniform(*LIFE_SECONDS))
        if not enough.is_set():
            deployment.kill()
            injected[NAME] += 1
            await deployment.start()


class _Work:
    """Measures the work that a deployment has done."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._commits = 0
        self._read = {shard.history: "-" for shard in bus.keys.all_shards()}

    async def commits(self) -> int:
        """Steps that were committed so far."""
        for key, after in self._read.items():
            page = await retry_during_outage(
                "history",
                lambda key=key, after=after: self._bus.redis.xrange(key, after, count=5000),
            )
            if page:
                self._commits += sum(fields[b"event"] == b"commit" for _, fields in page)
                self._read[key] = f"({page[-1][0].decode()}"
        return self._commits


async def _no_watchers() -> None:
    """Watch nothing: only the supervisor is attacked."""


async def _wait_until_idle(bus: Bus) -> None:
    """Wait until no work is left and dead consumers are forgotten. Gives up after `REST_SECONDS`:
    the checker reports what was left."""
    until = time.monotonic() + REST_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(*OUTAGE):
            alive = tuple(f"{worker.name}-" for worker in await live_workers(bus))
            work = (await stream_states(bus, work_keys(bus, WORK_STREAMS))).values()
            logs = (await stream_states(bus, log_keys(bus))).values()
            busy = any(state.length for state in (*work, *logs))
            named = [name for state in work for name in state.consumers]
            # Readers of a log are not named after their worker; there is one recorder.
            forgotten = all(name.startswith(alive) for name in named)
            if not busy and forgotten and all(len(state.consumers) <= 1 for state in logs):
                return
        await asyncio.sleep(_PAUSE)

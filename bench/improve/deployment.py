"""The deployment of a stream: a real `runtime up` of a profile, with an endpoint as its big model
and a Redis behind a proxy. It can be attacked while it serves (`loopline.bench.improve.attacks`).

    FOLDER/profile.toml    its profile
    FOLDER/up.log          its supervisor's log
    FOLDER/state/          its state, including the store of recorded runs
    FOLDER/redis/          the append-only file of its Redis

After a kill, it resumes from these files.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import structlog

from loopline.bench.errors import BenchError
from loopline.bench.improve.attacks import (
    ATTACKS,
    WEIGHTS,
    SupervisedFleet,
    SupervisedMonitor,
)
from loopline.bench.proofs.faults.attacks import Scene
from loopline.bench.proofs.faults.chaos import LOOK_SECONDS, Chaos
from loopline.bench.proofs.faults.proxy import Proxy
from loopline.bench.proofs.faults.settings import LEASE_SECONDS, bus_settings
from loopline.bench.proofs.faults.supervised import START_SECONDS
from loopline.bench.proofs.faults.supervised import Deployment as Supervised
from loopline.bus import Bus
from loopline.runtime.config.settings import Settings, load_resolved_file
from loopline.runtime.config.sources import URL_VARIABLE
from loopline.runtime.errors import Unreachable
from loopline.runtime.run_driver import seed_of
from loopline.runtime.supervise.control import ask_supervisor
from loopline.testing import RedisProcess
from loopline.trainers.core.background_loop import BackgroundLoop
from loopline.workers.scripted_api.answer import Reply
from loopline.workers.scripted_api.server import ScriptedServer

_LEFT_SECONDS = 60.0
"""Seconds that a killed stream's deployment has to exit; Linux has signalled its supervisor."""
_POLL_SECONDS = 0.1
_STARTS = 5
"""Maximum number of starts: a supervisor that can't reach its Redis at startup gives up, and
another one is started."""
_SUPERVISOR: Mapping[str, object] = {
    "supervisor.backoff_seconds": 0.1,
    "supervisor.backoff_max_seconds": 1.0,
    "supervisor.crash_loop_deaths": 100_000,
}


def profile_text(extends: str, values: Mapping[str, object]) -> str:
    """Return the content of a profile: values by dotted name. Leases are short and attempts many,
    as in `bench faults`: every question must be answered despite all attacks on workers."""
    bus = bus_settings("redis://127.0.0.1").model_dump(exclude_unset=True, exclude={"redis_url"})
    shared = {f"bus.{name}": value for name, value in bus.items()}
    lines = [
        f"{name} = {json.dumps(value)}"
        for name, value in {**shared, **_SUPERVISOR, **values}.items()
    ]
    return "\n".join([f"extends = {json.dumps(extends)}", *lines, ""])


@dataclass(frozen=True)
class _UnderAttack:
    chaos: Chaos
    enough: asyncio.Event
    injecting: asyncio.Task[None]
    watching: asyncio.Task[None]


class StreamDeployment:
    """Context manager of the whole deployment. Raises `UserError` and `BenchError` if a part does
    not start."""

    def __init__(
        self, folder: Path, profile: Callable[[str], str], reply: Reply, attack_every: int
    ) -> None:
        """Create a deployment. `profile` returns the profile's text for the endpoint's URL, and
        `reply` the endpoint's answers; `attack_every`: mean steps between two attacks."""
        self._folder = folder.resolve()
        self._profile = profile
        self._reply = reply
        self._attack_every = attack_every
        self._background = BackgroundLoop()
        self._stack = AsyncExitStack()
        self._under_attack: _UnderAttack | None = None

    def __enter__(self) -> Self:
        self._background.__enter__()
        try:
            self._background.run(self._open())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._background.run(self._stack.aclose())
        finally:
            self._background.__exit__()

    @property
    def settings(self) -> Settings:
        """Settings for connecting to the deployment."""
        run = self._up.state.running()
        url = self._proxy.url if run is None else run.redis_url
        return load_resolved_file(self._up.state.resolved).with_redis_url(url)

    @property
    def store(self) -> Path:
        return self._up.state.store

    @property
    def uncounted_seconds(self) -> float:
        """CPU seconds that the system did not charge to this process: those of workers whose
        supervisor was killed."""
        return self._fleet.uncounted_seconds

    @asynccontextmanager
    async def attacked(self, seed: int, name: str) -> AsyncGenerator[Counter[str]]:
        """Attack the deployment during the block, with the plan for this seed and name, and restore
        it at the end; the counter then contains the attacks."""
        injected = Counter[str]()
        if not self._attack_every:
            yield injected
            return
        await asyncio.to_thread(self._background.run, self._begin(seed_of(seed, name)))
        try:
            yield injected
        finally:
            injected.update(await asyncio.to_thread(self._background.run, self._end()))

    # -- on the background loop -----------------------------------------------------------------

    async def _open(self) -> None:
        # The client's reports about attacks are redundant.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        stack = self._stack
        self._server = RedisProcess(self._folder / "redis", persistence="always", listen="tcp")
        await asyncio.to_thread(self._server.start)
        stack.callback(self._server.kill)
        self._proxy = await stack.enter_async_context(Proxy(self._server.url))
        endpoint = await stack.enter_async_context(ScriptedServer(reply=self._reply))
        self._up = Supervised(
            self._folder, self._profile(endpoint.url), {URL_VARIABLE: self._proxy.url}
        )
        self._fleet = SupervisedFleet(self._up, self._start)
        self._monitor = SupervisedMonitor(self._fleet)
        left, until = self._up.state, time.monotonic() + _LEFT_SECONDS
        while left.holder() and time.monotonic() < until:  # noqa: ASYNC110 - another process
            await asyncio.sleep(_POLL_SECONDS)
        stack.push_async_callback(self._close)
        await self._start()
        self._bus = await stack.enter_async_context(Bus(bus_settings(self._server.url)))

    async def _close(self) -> None:
        try:
            await self._up.down()
        finally:
            self._up.kill()

    async def _start(self) -> None:
        """Start the supervisor and wait for its workers. Raises `BenchError`."""
        for left in reversed(range(_STARTS)):
            try:
                await self._up.start()
                await self._until_ready()
                return
            except BenchError:
                await asyncio.to_thread(self._up.kill)
                if not left:
                    raise
                await asyncio.sleep(LEASE_SECONDS)

    async def _until_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not await asyncio.to_thread(self._is_ready):
            if time.monotonic() > until:
                raise BenchError(
                    f"not all workers are ready after {START_SECONDS:g} s: see "
                    f"{self._folder / 'up.log'} and {self._up.state.logs}"
                )
            await asyncio.sleep(_POLL_SECONDS)

    def _is_ready(self) -> bool:
        """Whether all workers are ready. Raises `BenchError` if the supervisor has exited."""
        run = self._up.state.running()
        if run is None:
            raise BenchError(f"the deployment has exited: see {self._folder / 'up.log'}")
        with contextlib.suppress(Unreachable):
            status = ask_supervisor(run.control, {"do": "status"})
            return all(worker["state"] == "ready" for worker in status["workers"])
        return False

    async def _begin(self, seed: int) -> None:
        await self._monitor.look(self._bus)
        scene = Scene(self._fleet, self._server, self._monitor, LEASE_SECONDS, self._proxy)
        chaos = Chaos(seed, scene, WEIGHTS, (0.0, 2.0 * self._attack_every), ATTACKS)
        enough = asyncio.Event()
        self._under_attack = _UnderAttack(
            chaos,
            enough,
            asyncio.create_task(chaos.run(enough)),
            asyncio.create_task(self._watch()),
        )

    async def _watch(self) -> None:
        while True:
            await self._monitor.look(self._bus)
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self) -> Counter[str]:
        under_attack = self._under_attack
        assert under_attack is not None
        under_attack.enough.set()
        try:
            await under_attack.injecting
        finally:
            under_attack.watching.cancel()
            await asyncio.wait({under_attack.watching})
        await self._until_ready()
        return under_attack.chaos.injected

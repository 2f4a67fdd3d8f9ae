"""Sessions that run an app's runs on a deployment's bus, or on models in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from loopline.agents.errors import AgentError
from loopline.agents.records import Budget, Run, Step, Trajectory
from loopline.bus import BusSettings, ThreadHead, advance_thread, read_thread
from loopline.runtime.client import deployment
from loopline.runtime.client.client import Client
from loopline.runtime.client.client import RunEvent as BusEvent
from loopline.runtime.client.run_records import RunUnknown, run_of
from loopline.runtime.config.sections import AppFile
from loopline.runtime.errors import InputError
from loopline.workers.engine_runner import EnginePool, EngineRunner


class Session(Protocol):
    """Interface between an app and the place where its runs are executed."""

    client: Client
    """Client that creates runs."""
    pools: tuple[str, ...]
    app: AppFile | None
    """The app whose tools the session's deployment serves."""
    needs_app: bool
    """Whether an app's tools are only known there if the deployment serves that app."""

    async def submit(self, run: Run) -> None: ...
    async def wait(self, run_id: str) -> Trajectory: ...
    async def cancel(self, run_id: str) -> None: ...
    def follow(self, run_id: str) -> AsyncIterator[BusEvent]: ...
    async def steps(self, run_id: str) -> tuple[Step, ...]: ...
    async def run(self, run_id: str) -> Run: ...
    async def is_known(self, run_id: str) -> bool: ...
    async def has_ended(self, run_id: str) -> bool: ...
    async def head(self, thread: str) -> ThreadHead | None: ...
    async def advance(
        self, thread: str, read: ThreadHead | None, next_run: ThreadHead | None
    ) -> bool: ...


class BusSession:
    """Session on a deployment."""

    needs_app = True

    def __init__(self, client: Client, where: deployment.Deployment) -> None:
        self.client = client
        self.pools = tuple(where.settings.models)
        self.app = where.settings.app

    async def submit(self, run: Run) -> None:
        await self.client.submit(run)

    async def wait(self, run_id: str) -> Trajectory:
        return await self.client.wait(run_id)

    async def cancel(self, run_id: str) -> None:
        await self.client.cancel(run_id)

    def follow(self, run_id: str) -> AsyncIterator[BusEvent]:
        return self.client.follow(run_id)

    async def steps(self, run_id: str) -> tuple[Step, ...]:
        return await self.client.steps(run_id)

    async def run(self, run_id: str) -> Run:
        return run_of(await self.client.bus.run_state(run_id))

    async def is_known(self, run_id: str) -> bool:
        return (await self.client.bus.run_state(run_id)).state != "missing"

    async def has_ended(self, run_id: str) -> bool:
        return not (await self.client.bus.run_state(run_id)).active

    async def head(self, thread: str) -> ThreadHead | None:
        return await read_thread(self.client.bus, thread)

    async def advance(
        self, thread: str, read: ThreadHead | None, next_run: ThreadHead | None
    ) -> bool:
        return await advance_thread(self.client.bus, thread, read, next_run)


@asynccontextmanager
async def bus_session(redis_url: str | None) -> AsyncGenerator[BusSession]:
    """Yield a session on the deployment of this state directory, or the one at a URL. Raises
    `Unreachable` and `BusUnavailable`."""
    # This reads files and may ask a server, so it must not block the event loop.
    where = await asyncio.to_thread(deployment.find, redis_url=redis_url)
    settings = where.settings
    async with Client.of(settings) as client:
        yield BusSession(client, where)


class LocalSession:
    """Session on models in this process without a bus, with the limits of `EngineRunner`."""

    needs_app = False
    app: AppFile | None = None

    def __init__(self, runner: EngineRunner, pools: Mapping[str, EnginePool]) -> None:
        self.client = Client.connect(BusSettings())
        self.pools = tuple(pools)
        self._unpaid = all(pool.settings.engine == "scripted" for pool in pools.values())
        self._runner = runner
        self._runs: dict[str, asyncio.Task[Trajectory]] = {}
        self._heads: dict[str, ThreadHead] = {}

    async def submit(self, run: Run) -> None:
        if self._unpaid:  # scripted models cost nothing; the runner refuses other budgets
            budget = Budget(seconds=run.budget.seconds)
            run = run.model_copy(update={"budget": budget})
        self._runs[run.id] = asyncio.create_task(self._played(run), name=run.id)

    async def _played(self, run: Run) -> Trajectory:
        try:
            return await self._runner.play(run)
        except AgentError as error:
            raise InputError(str(error)) from error

    async def wait(self, run_id: str) -> Trajectory:
        return await asyncio.shield(self._task(run_id))

    async def cancel(self, run_id: str) -> None:
        self._task(run_id).cancel()

    async def follow(self, run_id: str) -> AsyncGenerator[BusEvent]:
        """Yield the run's steps, once it has ended."""
        trajectory = await self.wait(run_id)
        for index in range(len(trajectory.steps)):
            yield BusEvent(f"{index}-0", "step", {"index": str(index)})

    async def steps(self, run_id: str) -> tuple[Step, ...]:
        return (await self.wait(run_id)).steps

    async def run(self, run_id: str) -> Run:
        return (await self.wait(run_id)).run

    async def is_known(self, run_id: str) -> bool:
        return run_id in self._runs

    async def has_ended(self, run_id: str) -> bool:
        return self._task(run_id).done()

    async def head(self, thread: str) -> ThreadHead | None:
        return self._heads.get(thread)

    async def advance(
        self, thread: str, read: ThreadHead | None, next_run: ThreadHead | None
    ) -> bool:
        if self._heads.get(thread) != read:
            return False
        if next_run is None:
            self._heads.pop(thread, None)
        else:
            self._heads[thread] = next_run
        return True

    async def close(self) -> None:
        """Cancel the runs in progress, each in its own event loop (`app.sync` has another one)."""
        here = asyncio.get_running_loop()
        mine = [task for task in self._runs.values() if task.get_loop() is here]
        for task in self._runs.values():
            if task not in mine and not task.done():
                task.get_loop().call_soon_threadsafe(task.cancel)
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    def _task(self, run_id: str) -> asyncio.Task[Trajectory]:
        if run_id not in self._runs:
            raise RunUnknown(f"this process has played no run {run_id}")
        return self._runs[run_id]

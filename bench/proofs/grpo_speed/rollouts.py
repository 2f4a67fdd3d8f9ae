"""Rollouts of `pair` on Plan-Path: through the bus, as in a deployment, and in this process on the
same engine."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import DEFAULT, find
from loopline.agents.payloads import PLAYER
from loopline.agents.records import Budget, JsonObject, Run, Task, Trajectory
from loopline.agents.workflows import policies_for, prompt_hashes, workflows
from loopline.bench.errors import BenchError
from loopline.bench.report.facts import BROKEN
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_ids import new_run_id
from loopline.testing import running_redis, running_workers
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import GpuWorkerSettings, RecorderSettings, RoleWorkerSettings

POOL = "pair"
WORKFLOW = "pair"
ROLE_WORKERS = 2
TURNS = 4
SIZE = 10
SECONDS = 600.0
"""Seconds of a run until its deadline."""
CONCURRENCY = 64
"""Concurrent runs, both ways."""
WARM_RUNS = 4
"""Most runs before the measured ones, in which memory is allocated and kernels are chosen."""


@dataclass(frozen=True)
class Rollouts:
    """Rollouts of a repeat."""

    model: str
    runs: int
    candidates: int
    max_tokens: int
    seed: int

    @property
    def served(self) -> ModelSettings:
        """Settings of the model: one thread, and the log-probabilities that a trainer needs."""
        return ModelSettings(
            engine="torch", model=self.model, device="cpu", max_tokens=self.max_tokens,
            constrain_tools=False, plain_logprobs=True,
            max_concurrency=CONCURRENCY * self.candidates,
        )  # fmt: skip

    def tasks(self, repeat: int) -> list[Task]:
        """Return the puzzles of a repeat, which differ from those of the others."""
        game = find(DEFAULT)
        levels = game.levels(SIZE, {}, {"turns": TURNS, "brief": True})
        seed = zlib.crc32(f"{self.seed}:{repeat}".encode())
        return [game.task(puzzle) for puzzle in game.puzzles(Split.TRAIN, seed, self.runs, levels)]

    @property
    def warm_up(self) -> Rollouts:
        """Rollouts that are played first, without being measured."""
        return replace(self, runs=min(self.runs, WARM_RUNS))

    def run(self, task: Task, number: int) -> Run:
        """Return a run that is the same in both ways, except for its id."""
        now = time.time()
        options: JsonObject = {
            "candidates": self.candidates, "max_tokens": self.max_tokens, "instructions": False,
        }  # fmt: skip
        return Run(
            id=new_run_id(now),
            task=task,
            workflow=WORKFLOW,
            options=workflows.get(WORKFLOW).check_options(options),
            policies=policies_for(
                WORKFLOW, {agent.name: POOL for agent in find(DEFAULT).agents}, DEFAULT
            ),
            prompts=prompt_hashes(WORKFLOW, environment=DEFAULT),
            seed=number,
            budget=Budget(seconds=SECONDS),
            created=now,
            deadline=now + SECONDS,
        )


@dataclass(frozen=True)
class Played:
    """Result of one repeat in one way."""

    tokens: int
    """Number of sampled tokens."""
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


async def play_in_process(work: Rollouts, repeats: Sequence[int]) -> list[Played]:
    """Play each repeat in this process, after a warm-up."""
    engine = build_engine(work.served)
    await engine.start()
    try:
        player = EngineRunner({POOL: EnginePool(work.served, engine)})
        await _play_in_process(player, work.warm_up, -1)
        return [await _play_in_process(player, work, repeat) for repeat in repeats]
    finally:
        await engine.close()


async def _play_in_process(player: EngineRunner, work: Rollouts, repeat: int) -> Played:
    runs = [work.run(task, number) for number, task in enumerate(work.tasks(repeat))]
    began = time.perf_counter()
    trajectories = [trajectory async for trajectory in player.play_all(runs, together=CONCURRENCY)]
    return _played_result(trajectories, time.perf_counter() - began)


async def play_on_bus(work: Rollouts, repeats: Sequence[int], folder: Path) -> list[Played]:
    """Play each repeat on processes as in a deployment, after a warm-up."""
    async with _deploy(work, folder) as client:
        await _play_on_bus(client, work.warm_up, -1)
        return [await _play_on_bus(client, work, repeat) for repeat in repeats]


@asynccontextmanager
async def _deploy(work: Rollouts, folder: Path) -> AsyncGenerator[Client]:
    # Persistent as in `runtime up`.
    with running_redis(folder / "redis", persistence="everysec", listen="tcp") as server:
        # Ctrl-C during the server's start is raised here. If it were raised during the start of a
        # subprocess, which is the next wait, asyncio would never return from it.
        await asyncio.sleep(0)
        bus = BusSettings(redis_url=server.url)
        worker_settings = [
            GpuWorkerSettings(bus=bus, name="gpu", models={POOL: work.served}),
            *(
                RoleWorkerSettings(
                    bus=bus, name=f"player-{number}", roles=(PLAYER,), concurrency=CONCURRENCY
                )
                for number in range(ROLE_WORKERS)
            ),
            RecorderSettings(bus=bus, name="recorder", store=folder / "store"),
        ]
        async with (
            running_workers(worker_settings, folder / "workers"),
            Client.connect(bus) as client,
        ):
            yield client


async def _play_on_bus(client: Client, work: Rollouts, repeat: int) -> Played:
    places = asyncio.Semaphore(CONCURRENCY)
    runs = [work.run(task, number) for number, task in enumerate(work.tasks(repeat))]

    async def played(run: Run) -> Trajectory:
        async with places:
            await client.submit(run)
            return await client.wait(run.id)

    began = time.perf_counter()
    trajectories = await asyncio.gather(*map(played, runs))
    return _played_result(trajectories, time.perf_counter() - began)


def _played_result(trajectories: Sequence[Trajectory], seconds: float) -> Played:
    """Check a run. Raises `BenchError` if it has no regular end."""
    for trajectory in trajectories:
        if trajectory.outcome in BROKEN:
            raise BenchError(
                f"run {trajectory.run.id} ended as {trajectory.outcome}: {trajectory.reason}"
            )
    tokens = sum(
        len(call.output_ids)
        for trajectory in trajectories
        for step in trajectory.steps
        for call in step.calls
    )
    return Played(tokens, seconds)

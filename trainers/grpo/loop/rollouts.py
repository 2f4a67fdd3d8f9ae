"""The runs of a wave on a running deployment: starts them, and waits until their trajectories have
arrived. Starting is idempotent, so a killed training starts its planned runs again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from loopline.agents.records import Budget, GenerationOptions, Run, Trajectory
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_records import RunUnknown
from loopline.runtime.run_driver import RunDriver
from loopline.trainers.data.held_out import LOOK_TAG
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.groups import LOOP_TAG, ROUND_TAG
from loopline.trainers.grpo.loop.run_directory import PlannedRun, RolloutBatch
from loopline.trainers.grpo.loop.settings import LoopSettings

LOOK_SECONDS = 0.2
GRACE_SECONDS = 60.0
"""Seconds that a deployment has to end a run after its deadline."""
LOSSES = 3
"""Number of times that the bus may lose the same run."""


@dataclass(frozen=True)
class Rollouts:
    """Puts waves on a bus and collects their results."""

    client: Client
    settings: LoopSettings
    ended: Callable[[RolloutBatch, int], None]
    """Receives the number of runs of a wave that have ended."""
    driver: RunDriver
    training: str
    """Id of the loop."""
    looks: bool = False
    """Whether the runs evaluate on held-out tasks: greedily, one completion each."""

    async def begin(self, wave: RolloutBatch) -> None:
        """Admit every run that is not admitted yet. Raises `BusUnavailable`, `UserError`."""
        for planned in wave.runs:
            await self._submit(wave, planned)

    async def collect(self, wave: RolloutBatch) -> tuple[Trajectory, ...]:
        """The trajectories, in the order of the plan. Raises `TrainingError` for runs that do not
        end after their deadline."""
        until = time.monotonic() + self.settings.run_seconds + GRACE_SECONDS
        waiting = [asyncio.create_task(self._collect_run(wave, planned)) for planned in wave.runs]
        try:
            while True:
                done, remaining = await asyncio.wait(waiting, timeout=LOOK_SECONDS)
                self.ended(wave, len(done))
                for task in done:
                    task.result()
                if not remaining:
                    return tuple(task.result() for task in waiting)
                if time.monotonic() > until:
                    raise TrainingError(
                        f"loop: {len(remaining):,} of {len(waiting):,} runs have not ended within "
                        "their time: check with `runtime status` that role workers and gpu "
                        "workers run, then resume with the same command"
                    )
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _collect_run(self, wave: RolloutBatch, planned: PlannedRun) -> Trajectory:
        for _ in range(LOSSES):
            try:
                return await self.client.wait(planned.id)
            except RunUnknown:
                # A bus that lost its data, or dropped the run while the training was stopped.
                await self._submit(wave, planned)
        raise TrainingError(
            f"loop: the bus lost the run {planned.id} {LOSSES} times: check that its append-only "
            "file is on"
        )

    async def _submit(self, wave: RolloutBatch, planned: PlannedRun) -> None:
        await self.driver.admit(lambda: self._run(wave, planned))

    def _run(self, wave: RolloutBatch, planned: PlannedRun) -> Run:
        task, settings = planned.task, self.settings
        if self.looks:
            # Not a round of a replay: nothing is learned from held-out tasks.
            tags = {LOOK_TAG: self.training, ROUND_TAG: str(wave.round)}
        else:
            tags = {
                LOOP_TAG: self.training,
                ROUND_TAG: str(wave.round),
                "wave": str(wave.number),
            }
        by_agent = settings.sampling_of(greedily=self.looks)
        options = settings.options
        generation = GenerationOptions(agents=by_agent) if by_agent else None
        if settings.asks:
            temperature = 0.0 if self.looks else settings.temperature
            generation = GenerationOptions(temperature=temperature, top_p=1.0, agents=by_agent)
        elif self.looks:
            options = {**options, "greedy": True, "candidates": 1, "adaptive": None}
        return self.client.new_run(
            task.prompt,
            workflow=settings.workflow,
            policies={**settings.partners, **settings.policies},
            options=options,
            generation=generation,
            seed=planned.seed,
            budget=Budget(seconds=settings.run_seconds),
            tags=tags,
            environment=task.environment,
            instance=task.instance,
            run_id=planned.id,
        )

"""A team on engines in this process; its adapters can be exchanged between rounds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Self

from loopline.agents.records import GenerationOptions, Run, Trajectory
from loopline.agents.workflows import prompt_hashes
from loopline.bench.experiments.team_grpo.cells import TeamSettings
from loopline.runtime.client.run_ids import new_run_id
from loopline.trainers.data.questions import Question, fault
from loopline.trainers.grpo.rewards import dollars_of
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.settings import ModelSettings, Price

TOGETHER = 256
"""Concurrent runs."""
RUN_SECONDS = 3_600.0
MAX_TOKENS = 192


class Team:
    """Context manager that runs the team's engines."""

    def __init__(self, settings: TeamSettings) -> None:
        self.workflow, self.setup = settings.workflow, settings.setup
        self.dollar_weight = settings.dollar_weight
        pools = {
            name: ModelSettings(
                engine="torch", model=model, device="cpu", max_tokens=MAX_TOKENS,
                max_concurrency=TOGETHER, constrain_tools=False, price=self._price(name),
            )
            for name, model in self.setup.pools.items()
        }  # fmt: skip
        self._pools = {name: EnginePool(pool, build_engine(pool)) for name, pool in pools.items()}
        self._prompts = prompt_hashes(self.workflow, options=self.setup.options)

    def _price(self, pool: str) -> Price:
        prompt, completion = self.setup.prices.get(pool, (0.0, 0.0))
        return Price(prompt=Decimal(str(prompt)), completion=Decimal(str(completion)))

    def reward(self, trajectory: Trajectory, *, solved: bool) -> float:
        """Return the reward of a run."""
        return float(solved) - self.dollar_weight * dollars_of(trajectory)

    async def __aenter__(self) -> Self:
        for pool in self._pools.values():
            await pool.engine.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for pool in self._pools.values():
            await pool.engine.close()

    async def serve(self, policies: Mapping[str, Path], version: int) -> None:
        """Serve these adapters from now on."""
        for policy, path in policies.items():
            await self._pools[policy.partition("/")[0]].engine.load_adapter(
                policy, str(path), version
            )

    async def play(
        self, questions: Sequence[Question], *, times: int = 1, temperature: float, seed: int
    ) -> list[tuple[Trajectory, bool]]:
        """Play each question `times` times; return the runs in order, each with whether it is
        solved."""
        questions_by_run: dict[str, Question] = {}
        runs = list(self._runs(questions, times, temperature, seed, questions_by_run))
        runner, played = EngineRunner(self._pools), dict[str, tuple[Trajectory, bool]]()
        async for trajectory in runner.play_all(iter(runs), together=TOGETHER):
            solved = not fault(questions_by_run[trajectory.run.id], trajectory)
            played[trajectory.run.id] = (trajectory, solved)
        return [played[run.id] for run in runs]

    def _runs(
        self, questions: Sequence[Question], times: int, temperature: float, seed: int,
        questions_by_run: dict[str, Question],
    ) -> Iterable[Run]:  # fmt: skip
        now = time.time()
        for number, question in enumerate(questions):
            for play in range(times):
                run = Run(
                    id=new_run_id(), task=question.task, workflow=self.workflow,
                    options=self.setup.options, policies=self.setup.policies,
                    prompts=self._prompts, generation=GenerationOptions(temperature=temperature),
                    seed=seed + number * times + play, created=now, deadline=now + RUN_SECONDS,
                )  # fmt: skip
                questions_by_run[run.id] = question
                yield run

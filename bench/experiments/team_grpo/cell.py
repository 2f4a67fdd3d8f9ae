"""One training of a team: rounds of sampled runs, each followed by an update of every policy, until
the CPU time is used up. Then the best version on validation tasks is measured.

GRPO and expert iteration differ only in the loss: tasks, samples per task and time are the same. A
training takes minutes; an interrupted one starts over.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from loopline.agents.records import Trajectory
from loopline.bench.experiments.harness import SETTINGS
from loopline.bench.experiments.team_grpo.cells import (
    RESULT,
    Cell,
    CellResult,
    RoundCurve,
    TeamSettings,
    read_result,
)
from loopline.bench.experiments.team_grpo.team import Team
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.json_records import write_record
from loopline.trainers.core.network import base_folder, load_base
from loopline.trainers.data.held_out import TRAIN
from loopline.trainers.data.questions import (
    Question,
    generate_questions,
    split_questions,
    training_questions,
    unplayed_questions,
)
from loopline.trainers.grpo.data import sealing_of
from loopline.trainers.grpo.facts import PolicyFacts
from loopline.trainers.grpo.groups import seal
from loopline.trainers.grpo.learnable import group_worth
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.losses import Objective
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.rewards import RewardChoice, dollars_of
from loopline.trainers.grpo.settings import GrpoSettings, InitialPolicy
from loopline.trainers.grpo.storing import folder_name, write_policies
from loopline.trainers.grpo.stream import StepBatch
from loopline.workers.engines.local.adapter_base import weights_sha256


def run_job(output: Path, job: str, tell: Callable[[JobLine], None]) -> str:
    """Run one cell for `loopline.bench.experiments.worker`."""
    settings = TeamSettings.model_validate_json((output / SETTINGS).read_bytes())
    cell = Cell.model_validate_json(job)
    result = read_result(cell, output)
    if result is None:
        result = asyncio.run(_Training(cell, output, settings, tell).run())
    return f"{result.solved:,} of {len(result.outcomes):,} solved"


def look_questions(settings: TeamSettings) -> tuple[Question, ...]:
    """Return the validation tasks, which are the same for every cell: they come from the quarter of
    the training's split that no round plays."""
    dataset, domains = settings.setup.dataset, settings.domains
    drawn = generate_questions(dataset, 1, 0, settings.look_tasks, settings.split, domains)
    return drawn.held_out


def training_tasks(settings: TeamSettings, seed: int) -> Iterator[Question]:
    """Yield the tasks that rounds play, without end."""
    dataset = settings.setup.dataset
    return training_questions(dataset, 10_000 + seed, settings.split, settings.domains)


def held_out_questions(settings: TeamSettings) -> list[Question]:
    """Return the held-out tasks, which are the same for every cell. If the team learns in `train`,
    they come from the setup's own split, from which nothing is learned. For any other split, they
    come from its quarter that no round plays, without the validation tasks."""
    setup, seed = settings.setup, settings.test_seed
    if settings.split == TRAIN:
        drawn = split_questions(setup.dataset, seed, setup.split, settings.domains)
        return list(islice(drawn, settings.held_out))
    looked_at = {question.task.prompt for question in look_questions(settings)}
    unplayed = unplayed_questions(setup.dataset, seed, settings.split, settings.domains)
    new = (question for question in unplayed if question.task.prompt not in looked_at)
    return list(islice(new, settings.held_out))


class _Training:
    def __init__(
        self, cell: Cell, output: Path, settings: TeamSettings, tell: Callable[[JobLine], None]
    ) -> None:
        import torch

        torch.set_num_threads(1)
        self.cell, self.settings, self.tell = cell, settings, tell
        self.folder = cell.folder(output)
        self.setup = settings.setup
        self.grpo = self._grpo()
        self.loaded = load_base(self.grpo.base, device="cpu")
        self.policies = initial_policies(
            self.grpo, [self.setup.policies[agent] for agent in self.setup.trained], self.loaded
        )
        self.learner = Learner(self.policies)
        self.sealing = replace(sealing_of(self.grpo, self.loaded), split=settings.split)
        self.looks = look_questions(settings)
        self.curve: list[RoundCurve] = []
        self.runs = 0
        self.best = (-math.inf, 0)
        """Mean reward of the validation tasks, and the round that reached it."""

    def _grpo(self) -> GrpoSettings:
        setup, settings = self.setup, self.settings
        base = setup.pools[setup.base]
        return GrpoSettings(
            base=base,
            base_sha256=weights_sha256(base_folder(base)),
            init_from={
                policy: InitialPolicy(model=model, sha256=weights_sha256(base_folder(model)))
                for policy, model in setup.begin.items()
            },
            data_sha256="",
            grouping="trajectory",
            group_size=settings.group_size,
            agents=setup.trained,
            assigned={agent: setup.policies[agent] for agent in setup.trained},
            advantage=settings.advantage,
            reward=RewardChoice(dollar_weight=settings.dollar_weight),
            weights=settings.weights,
            rank=settings.rank,
            minibatch=settings.minibatch,
            batch=settings.tasks * len(setup.trained),
            learning_rate=settings.learning_rate,
            objective=Objective(loss="rft" if self.cell.method == "expert-iteration" else "grpo"),
            seed=max(self.cell.seed, 1),
        )

    async def run(self) -> CellResult:
        """Train and measure, and write the result."""
        began = time.process_time()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        async with Team(self.settings) as team:
            self._write(0)
            await team.serve(self._served(0), 1)
            train_began = time.process_time()
            if self.cell.method != "start":
                await self._train(team, train_began)
            spent = time.process_time() - train_began
            best = self.best[1] if self.curve else 0
            await team.serve(self._served(best), len(self.curve) + 2)
            questions = held_out_questions(self.settings)
            self.tell(JobLine(event="playing", message=f"{len(questions):,} held-out tasks"))
            played = await team.play(questions, temperature=0.0, seed=0)
        result = CellResult(
            cell=self.cell,
            outcomes="".join("1" if solved else "0" for _, solved in played),
            micro_dollars=tuple(round(1e6 * dollars_of(trajectory)) for trajectory, _ in played),
            rounds=tuple(self.curve),
            best=best,
            runs=self.runs,
            train_cpu_seconds=round(spent, 1),
            cpu_seconds=round(time.process_time() - began, 1),
        )
        write_record(self.folder / RESULT, result)
        return result

    async def _train(self, team: Team, began: float) -> None:
        tasks = training_tasks(self.settings, self.cell.seed)
        limit = 60 * self.settings.cpu_minutes
        number = 0
        while True:
            validation = None
            if number % self.settings.look_every == 0:
                validation = await self._validate(team, number)
            spent = time.process_time() - began
            if spent >= limit:
                if validation is None:
                    await self._validate(team, number)
                return
            number += 1
            questions = list(islice(tasks, self.settings.tasks))
            played = await team.play(
                questions, times=self.settings.group_size, temperature=self.settings.temperature,
                seed=(self.cell.seed << 32) + (number << 16),
            )  # fmt: skip
            self.runs += len(played)
            self._learn(number, played, validation, began)
            self._write(number)
            await team.serve(self._served(number), number + 1)

    async def _validate(self, team: Team, number: int) -> float:
        played = await team.play(self.looks, temperature=0.0, seed=0)
        rewards = [team.reward(trajectory, solved=solved) for trajectory, solved in played]
        mean = sum(rewards) / len(rewards)
        if mean > self.best[0]:
            self.best = (mean, number)
        return mean

    def _learn(
        self, number: int, played: Sequence[tuple[Trajectory, bool]], validation: float | None,
        began: float,
    ) -> None:  # fmt: skip
        rewarded = [
            trajectory.model_copy(update={"team_reward": float(solved)})
            for trajectory, solved in played
        ]
        reading = seal(rewarded, self.sealing)
        worth = {group.id: group_worth(group, self.grpo) for group in reading.records}
        trained = [group for group in reading.records if worth[group.id] == "trained"]
        if trained:
            self.learner.step(StepBatch(number, tuple(trained), (), 0))
        solved = sum(ok for _, ok in played) / len(played)
        spent = time.process_time() - began
        self.curve.append(
            RoundCurve(
                round=number,
                solved=solved,
                groups=len(reading.records),
                trained=len(trained),
                left_out=dict(Counter(entry.reason for entry in reading.skipped)),
                cpu_seconds=round(spent, 1),
                looked=validation,
            )
        )
        self.tell(
            JobLine(
                event="training", done=int(spent), total=int(60 * self.settings.cpu_minutes),
                message=f"round {number}: solved {solved:.1%}, {len(trained)} of "
                f"{len(reading.records)} groups, best look {self.best[0]:.3f}",
            )
        )  # fmt: skip

    def _served(self, number: int) -> dict[str, Path]:
        folder = self.folder / f"{number:04d}"
        return {name: folder / folder_name(name) for name in self.policies.names}

    def _write(self, number: int) -> None:
        facts_of = partial(PolicyFacts.of, settings=self.grpo, version=number, steps=())
        write_policies(self.policies, self.folder / f"{number:04d}", facts_of)
        for old in self.folder.glob("0*"):
            if int(old.name) not in (number, number - 1, self.best[1]):
                shutil.rmtree(old)

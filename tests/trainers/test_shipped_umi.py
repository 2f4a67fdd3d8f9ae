"""The three shipped roles load as the profile serves them, and solve the share that their card
states."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from loopline import workers
from loopline.agents.environments.api_worlds import Instance, instances
from loopline.agents.records import Outcome, Run, Trajectory
from loopline.agents.roles.umi.transcript import calls_of
from loopline.agents.workflows import prompt_hashes, workflows
from loopline.bench.tools.worlds import names_unoffered
from loopline.runtime.client.run_ids import new_run_id
from loopline.runtime.config import settings as config
from loopline.runtime.demo import WORLD
from loopline.trainers.glpft.report import read_facts
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local.adapter_base import weights_sha256

FOLDER = Path(workers.__path__[0]) / "micro_models"
ROLES = ("planner", "caller", "summarizer")
SAMPLE = 40
POINTS = 0.05
SPLIT, SEED = "unseen_worlds", 900
SETTINGS = config.load("umi_micro", environ={})
OPTIONS = workflows.get("umi").check_options({**SETTINGS.options["umi"], "calculator": False})


def runs(sample: list[Instance], instances_by_run: dict[str, Instance]) -> Iterator[Run]:
    for instance in sample:
        now = time.time()
        run = Run(
            id=new_run_id(now),
            task=instance.task,
            workflow="umi",
            options=OPTIONS,
            policies={role: SETTINGS.policies[role] for role in workflows.get("umi").roles},
            prompts=prompt_hashes("umi"),
            created=now,
            deadline=now + 3_600,
        )
        instances_by_run[run.id] = instance
        yield run


@pytest.mark.parametrize("role", ROLES)
def test_each_role_is_an_adapter_of_the_shipped_base(role: str) -> None:
    facts = read_facts(FOLDER / f"umi-{role}")
    assert facts is not None
    assert facts.base_sha256 == weights_sha256(FOLDER / "umi")


async def played(sample: list[Instance]) -> AsyncGenerator[tuple[Instance, Trajectory, bool]]:
    """Each instruction with the three roles: their run, and whether it was solved."""
    settings = SETTINGS.models["umi"]
    engine = build_engine(settings)
    await engine.start()
    try:
        for name, path in settings.adapters.items():
            await engine.load_adapter(f"umi/{name}", path, 1)
        instances_by_run: dict[str, Instance] = {}
        here = EngineRunner({"umi": EnginePool(settings, engine)})
        async for trajectory in here.play_all(runs(sample, instances_by_run), together=SAMPLE):
            instance = instances_by_run[trajectory.run.id]
            answer = trajectory.answer if trajectory.outcome is Outcome.ANSWERED else None
            verdict = instance.verify(answer, calls_of(trajectory.steps))
            yield instance, trajectory, verdict.solved
    finally:
        await engine.close()


async def test_the_solved_share_is_within_five_points_of_the_card() -> None:
    recorded = json.loads((FOLDER / "umi" / "solved.json").read_text())[SPLIT]
    solved = invented = 0
    async for instance, trajectory, was_solved in played(instances(SPLIT, SEED, SAMPLE)):
        solved += was_solved
        invented += names_unoffered(trajectory.steps, instance.recipe.tools)
    # The same instances as the first of the card's, so that only a change of code or weights can
    # make a difference.
    assert abs(solved - recorded["outcomes"][:SAMPLE].count("1")) <= POINTS * SAMPLE
    assert invented / SAMPLE <= 0.025


async def test_the_adapters_solve_the_instruction_of_the_demo_with_two_tools() -> None:
    [(_, trajectory, solved)] = [outcome async for outcome in played(instances(SPLIT, WORLD, 1))]
    assert solved
    assert len({call.name for call in calls_of(trajectory.steps)}) == 2

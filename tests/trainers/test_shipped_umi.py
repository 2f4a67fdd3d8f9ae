"""The three shipped roles load as the profile serves them, and solve what their card says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import workers
from agents.environments.api_worlds import Instance, instances
from agents.records import Outcome, Run
from agents.roles.umi.transcript import calls_of
from agents.workflows import prompt_hashes, workflows
from bench.tools.worlds import names_unoffered
from runtime import config
from runtime.run_ids import new_run_id
from trainers.glpft.facts import read_facts
from trainers.glpft.fingerprint import weights_sha256
from workers.engines.factory import build_engine
from workers.in_process import EnginePool, InProcess

FOLDER = Path(workers.__path__[0]) / "micro_models"
ROLES = ("planner", "caller", "summarizer")
SAMPLE = 40
POINTS = 0.05
SPLIT, SEED = "unseen_worlds", 123
SETTINGS = config.load("umi_micro", environ={})
OPTIONS = workflows.get("umi").check_options({**SETTINGS.options["umi"], "calculator": False})


def runs(sample: list[Instance], asked: dict[str, Instance]) -> Iterator[Run]:
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
        asked[run.id] = instance
        yield run


@pytest.mark.parametrize("role", ROLES)
def test_each_role_is_an_adapter_of_the_shipped_base(role: str) -> None:
    facts = read_facts(FOLDER / f"umi-{role}")
    assert facts is not None
    assert facts.base_sha256 == weights_sha256(FOLDER / "umi")


async def test_the_share_that_is_solved_is_within_five_points_of_the_card() -> None:
    recorded = json.loads((FOLDER / "umi" / "solved.json").read_text())[SPLIT]
    settings = SETTINGS.models["umi"]
    engine = build_engine(settings)
    await engine.start()
    try:
        for name, path in settings.adapters.items():
            await engine.load_adapter(f"umi/{name}", path, 1)
        asked: dict[str, Instance] = {}
        sample = instances(SPLIT, SEED, SAMPLE)
        solved = invented = 0
        played = InProcess({"umi": EnginePool(settings, engine)})
        async for trajectory in played.play_all(runs(sample, asked), together=SAMPLE):
            instance = asked[trajectory.run.id]
            answer = trajectory.answer if trajectory.outcome is Outcome.ANSWERED else None
            solved += instance.verify(answer, calls_of(trajectory.steps)).solved
            invented += names_unoffered(trajectory.steps, instance.recipe.tools)
    finally:
        await engine.close()
    # The same instances as the first of the card's, so that only a change of code or weights can
    # make a difference.
    assert abs(solved - recorded["outcomes"][:SAMPLE].count("1")) <= POINTS * SAMPLE
    assert invented / SAMPLE <= 0.025

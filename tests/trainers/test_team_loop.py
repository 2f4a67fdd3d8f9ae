"""The loop of a team: the next candidate starts from the serving version, whose skills are not
forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.agents.roles.umi.settings import UmiOptions
from loopline.bus import Bus, BusSettings
from loopline.bus.policies import load_policy
from loopline.runtime.client.client import Client
from loopline.trainers.core.checkpoints import claimed_settings
from loopline.trainers.data.datasets import DataSet, build
from loopline.trainers.data.sources import from_worlds
from loopline.trainers.glpft.settings import GlpftSettings
from loopline.trainers.improve.team import TeamLoop, Trial
from loopline.trainers.improve.team_settings import TeamLoopSettings

SETTINGS = TeamLoopSettings(tokens=2_000, wait=0.01, least=10)


def lessons() -> DataSet:
    options = UmiOptions.model_validate({"constrained": True, "tool_style": "signatures"})
    return build([from_worlds("train", 12, 1)], options)


class Judge:
    """The score of each version: the number of 20 new instructions, and of 20 old ones, that it
    solves."""

    def __init__(self, solved: dict[str, tuple[int, int]]) -> None:
        self._solved = solved
        self.pins: dict[str, str] = {}

    async def play(self, version: str, pin: str) -> Trial:
        self.pins[version] = pin
        new, old = self._solved[version]
        return Trial(
            new=[at < new for at in range(20)], old=[at < old for at in range(20)], micro_dollars=5
        )


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_candidate_that_forgets_does_not_serve_and_the_next_starts_from_its_predecessor(
    bus: Bus, settings: BusSettings, tmp_path: Path
) -> None:
    judge = Judge({"base": (0, 18), "0001": (10, 18), "0002": (15, 10), "0003": (15, 18)})
    async with Client(settings) as client:
        loop = TeamLoop(SETTINGS, tmp_path, client=client, trials=judge)
        decisions = [await loop.run_round(12 * number, lessons) for number in (1, 2, 3)]
    assert [decision.serving for decision in decisions] == ["0001", "0001", "0003"]
    assert [decision.gate.serving for decision in decisions] == [0.0, 0.5, 0.5]
    policy = await load_policy(bus, SETTINGS.policy)
    assert policy is not None
    folders = [tmp_path / "rounds" / decision.serving for decision in decisions]
    assert policy.path_of(policy.current) == str(folders[2] / "training/multitask")
    training = tmp_path / "rounds/0003/training/settings.json"
    assert claimed_settings(training, GlpftSettings).base == str(folders[0] / "training/multitask")
    assert set(judge.pins) == {"base", "0001", "0002", "0003"}


@pytest.mark.slow
async def test_forgetting_does_not_add_up_over_rounds(
    settings: BusSettings, tmp_path: Path
) -> None:
    judge = Judge({"base": (0, 18), "0001": (10, 17), "0002": (15, 16)})
    loop_settings = SETTINGS.model_copy(update={"old_margin": 0.06})
    async with Client(settings) as client:
        loop = TeamLoop(loop_settings, tmp_path, client=client, trials=judge)
        assert (await loop.run_round(12, lessons)).promoted
        second = await loop.run_round(24, lessons)
    # Each lost 5 points to its predecessor; the second has lost 10 since the first training.
    assert second.gate.passed
    assert not second.promoted
    assert (second.guard.candidate, second.guard.serving) == (0.8, 0.9)

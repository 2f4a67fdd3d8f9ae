"""The loop of a team: a candidate that forgets is tried out again as a blend with what serves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.roles.umi.settings import UmiOptions
from loopline.bus import Bus, BusSettings
from loopline.bus.policies import load_policy
from loopline.runtime.client.client import Client
from loopline.trainers.core.checkpoints import claimed_settings
from loopline.trainers.core.models import WEIGHTS
from loopline.trainers.core.network import base_folder
from loopline.trainers.data.datasets import DataSet, build
from loopline.trainers.data.sources import from_worlds
from loopline.trainers.errors import UnreadableModel
from loopline.trainers.glpft.settings import GlpftSettings
from loopline.trainers.improve.blends import write_blend
from loopline.trainers.improve.team import TeamLoop, Trial
from loopline.trainers.improve.team_settings import TeamLoopSettings

BASE = base_folder("micro:umi")
SETTINGS = TeamLoopSettings(tokens=2_000, wait=0.01, least=10, blends=(1.0, 0.5))


def lessons() -> DataSet:
    options = UmiOptions.model_validate({"constrained": True, "tool_style": "signatures"})
    return build([from_worlds("train", 12, 1)], options)


class Judge:
    """What each version solves: the number of 20 new instructions, and of 20 old ones."""

    def __init__(self, solved: dict[str, tuple[int, int]]) -> None:
        self._solved = solved
        self.pins: dict[str, str] = {}

    async def play(self, version: str, pin: str) -> Trial:
        self.pins[version] = pin
        new, old = self._solved[version]
        return Trial(
            new=[at < new for at in range(20)], old=[at < old for at in range(20)], micro_dollars=5
        )


@pytest.mark.timeout(180)
async def test_a_candidate_that_forgets_is_tried_again_as_a_blend_and_the_next_begins_with_that(
    bus: Bus, settings: BusSettings, tmp_path: Path
) -> None:
    judge = Judge(
        {"base": (0, 18), "0001": (15, 10), "0001-blend-50": (10, 18), "0002": (9, 18)}
    )  # fmt: skip
    async with Client(settings) as client:
        loop = TeamLoop(SETTINGS, tmp_path, client=client, trials=judge)
        first = await loop.run_round(12, lessons)
        assert (first.promoted, first.share, first.serving) == (True, 0.5, "0001-blend-50")
        assert (first.gate.candidate, first.guard.candidate) == (0.5, 0.9)
        assert first.micro_dollars == 10
        folder = tmp_path / "rounds" / "0001"
        policy = await load_policy(bus, SETTINGS.policy)
        assert policy is not None
        assert policy.path_of(policy.current) == str(folder / "blend-50")
        parts = (folder / "blend-50", folder / "training/multitask", BASE)
        blend, trained, base = (load_file(part / WEIGHTS) for part in parts)
        for name, tensor in blend.items():
            middle = (base[name].to(tensor.dtype) + trained[name]) / 2
            torch.testing.assert_close(tensor, middle, rtol=1e-4, atol=1e-5)
        assert any(not torch.equal(blend[name], trained[name]) for name in blend)

        second = await loop.run_round(24, lessons)
        # It is not better at the new kinds than the blend, so no blend of it is tried out.
        assert second.gate.serving == 0.5
        assert (second.promoted, second.share, second.serving) == (False, 1.0, "0001-blend-50")
        training = tmp_path / "rounds/0002/training/settings.json"
        assert claimed_settings(training, GlpftSettings).base == str(folder / "blend-50")
        assert set(judge.pins) == {"base", "0001", "0001-blend-50", "0002"}


def test_models_of_different_layers_do_not_blend(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match="different layers"):
        write_blend(base_folder("micro:slm"), BASE, 0.5, tmp_path / "blend")
    with pytest.raises(UnreadableModel, match="is missing"):
        write_blend(tmp_path, BASE, 0.5, tmp_path / "blend")
    assert not (tmp_path / "blend").exists()


async def test_forgetting_does_not_add_up_over_rounds(
    settings: BusSettings, tmp_path: Path
) -> None:
    judge = Judge({"base": (0, 18), "0001": (10, 17), "0002": (15, 16)})
    loop_settings = SETTINGS.model_copy(update={"old_margin": 0.06, "blends": (1.0,)})
    async with Client(settings) as client:
        loop = TeamLoop(loop_settings, tmp_path, client=client, trials=judge)
        assert (await loop.run_round(12, lessons)).promoted
        second = await loop.run_round(24, lessons)
    # Each lost 5 points to the one before it; the second has lost 10 since the first training.
    assert second.gate.passed
    assert not second.promoted
    assert (second.guard.candidate, second.guard.serving) == (0.8, 0.9)

"""`train glpft --from-store`: the runs of a deployment, in the texts that they met."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.environments.api_worlds import instances
from agents.records import Trajectory
from agents.roles.umi.settings import UmiOptions
from tests.trainers.test_data_examples import made, recorded_in, served
from trainers.data.datasets import build
from trainers.data.sources import from_store, from_worlds
from trainers.errors import UnreadableData
from trainers.glpft.recorded_runs import data_of_runs

COUNT = 6


async def record(store: Path, *forms: UmiOptions) -> None:
    """Solved runs in the simulator, one after the other with the next of these options."""
    trajectories = from_worlds("train", COUNT, 5).trajectories
    runs: list[Trajectory] = []
    for number, instance in enumerate(instances("train", 5, COUNT)):
        options = forms[number % len(forms)]
        ended, _ = await served(instance, options, made(trajectories[number], options)[0])
        own = ended.run.model_copy(update={"id": ended.run.id[:-1] + str(number)})
        runs.append(ended.model_copy(update={"run": own}))
    await recorded_in(store, *runs)


async def test_the_options_of_the_runs_give_the_form_of_their_texts(tmp_path: Path) -> None:
    options = UmiOptions(tool_style="signatures", observation_chars=100, max_calls=5)
    await record(tmp_path, options)
    data = data_of_runs(tmp_path)
    assert data.card.sources[0].trajectories == COUNT
    assert data == build([from_store(tmp_path)], options)
    assert data.card.options["tool_style"] == "signatures"


async def test_runs_of_several_forms_are_refused_with_the_way_out(tmp_path: Path) -> None:
    await record(tmp_path, UmiOptions(), UmiOptions(constrained=False))
    with pytest.raises(UnreadableData, match=r"different options.*train data --store"):
        data_of_runs(tmp_path)

"""`train glpft --from-store`: the runs of a deployment, with the texts that they met."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopline.agents.environments.api_worlds import instances
from loopline.agents.records import Trajectory
from loopline.agents.rewards import Reward
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.trainers.data.datasets import build, read
from loopline.trainers.data.feedback import PostedFeedback, RewardThreshold
from loopline.trainers.data.sources import from_store, from_worlds
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.errors import UnreadableData
from loopline.trainers.glpft.pipeline import claim
from loopline.trainers.glpft.recorded_runs import data_of_runs
from loopline.trainers.glpft.settings import GlpftSettings
from loopline.workers.store.rewards import read_rewards
from tests.trainers.test_data_examples import made, recorded_in, served
from tests.trainers.test_glpft_command import command
from tests.trainers.test_posted_rewards import record_rewards
from tests.trainers.tiny_glpft import SETTINGS

COUNT = 6


async def record(store: Path, *forms: UmiOptions) -> None:
    """Solved runs in the simulator, cycling through these options."""
    trajectories = from_worlds("train", COUNT, 5).trajectories
    runs: list[Trajectory] = []
    for number, instance in enumerate(instances("train", 5, COUNT)):
        options = forms[number % len(forms)]
        ended, _ = await served(instance, options, made(trajectories[number], options)[0])
        run = ended.run.model_copy(update={"id": ended.run.id[:-1] + str(number)})
        runs.append(ended.model_copy(update={"run": run}))
    await recorded_in(store, *runs)


async def test_the_texts_have_the_format_that_the_runs_options_set(tmp_path: Path) -> None:
    options = UmiOptions(tool_style="signatures", observation_chars=100, max_calls=5)
    await record(tmp_path, options)
    data = data_of_runs(tmp_path)
    assert data.card.sources[0].trajectories == COUNT
    assert data == build([from_store(tmp_path)], options)
    assert data.card.options["tool_style"] == "signatures"


async def test_runs_with_different_options_are_refused_with_a_remedy(tmp_path: Path) -> None:
    await record(tmp_path, UmiOptions(), UmiOptions(constrained=False))
    with pytest.raises(UnreadableData, match=r"different options.*train data --store"):
        data_of_runs(tmp_path)


REFUSED = (
    (("--rate", "0"), "--rate 0: Input should be greater than 0"),
    (("--publish",), "a training from random weights has its own tokenizer"),
    (("--weights", "lora"), "an adapter of random weights learns nothing"),
)


async def test_a_refused_command_leaves_no_runs_behind_for_the_corrected_one(
    tmp_path: Path,
) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    await record(store, UmiOptions())
    for arguments, message in REFUSED:
        code, answer = command(output, "--from-store", store, *arguments)
        assert code != 0
        assert message in answer
        assert not output.exists()
    (output / "notes").mkdir(parents=True)
    assert "already contains other files" in command(output, "--from-store", store)[1]
    assert [path.name for path in output.iterdir()] == ["notes"]


async def test_a_refused_restart_leaves_the_folder_unchanged(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    await record(store, UmiOptions())
    data = data_of_runs(store)
    claim(SETTINGS, data, output, keep_data=True)
    for arguments, message in REFUSED:
        assert message in command(output, "--from-store", store, "--restart", *arguments)[1]
        assert (
            GlpftSettings.model_validate_json((output / "settings.json").read_bytes()) == SETTINGS
        )
        assert read(output / "data") == data


async def test_runs_recorded_later_belong_to_another_training(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    await record(store, UmiOptions())
    data = data_of_runs(store)
    claim(
        SETTINGS.model_copy(update={"data_sha256": data.card.sha256}), data, output, keep_data=True
    )
    for file in (store / "trajectories").iterdir():
        file.unlink()
    text = command(output, "--from-store", store)[1]
    assert "was started with other settings" in text
    assert "data_sha256" not in text


def post(store: Path, value: float, *numbers: int) -> None:
    """Rewards for the runs with these numbers."""
    runs = [run.run.id for run in read_trajectories(store, "umi").records]
    rewards = [
        Reward(id=f"{number}/{value}", run_id=runs[number], source="user", value=value)
        for number in numbers
    ]
    asyncio.run(record_rewards(store, *rewards, batch=int(10 * value) + 1))


def test_posted_rewards_select_the_runs_to_learn_from_and_the_others_are_counted(
    tmp_path: Path,
) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    asyncio.run(record(store, UmiOptions()))
    post(store, 1.0, 0, 1, 2)
    post(store, 0.5, 3)
    arguments = ("--from-store", store, "--reward-from", "feedback", "--min-reward", 0.75)
    short = ("--method", "single", "--size", "micro-0.2m", "--tokens", 3_000, "--validation", 0)
    code, text = command(output, *arguments, *short)
    assert code == 0, text
    assert "4 posted rewards" in text
    assert "3 runs to learn from" in text
    assert "left out: 2 × run without a posted reward" in text
    assert "left out: 1 × run with a posted reward below 0.75" in text


def test_a_threshold_that_no_run_reaches_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    asyncio.run(record(tmp_path, UmiOptions()))
    post(tmp_path, 0.5, 0)
    threshold = RewardThreshold(PostedFeedback(read_rewards(tmp_path)), 1.0)
    with pytest.raises(UnreadableData, match=r"posted reward: 5; .*below 1: 1"):
        data_of_runs(tmp_path, threshold)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--min-reward", 1), "--min-reward only applies with --reward-from feedback"),
        (("--reward-from", "feedback"), "needs --min-reward X"),
    ],
)
def test_a_threshold_without_its_rewards_is_refused(
    tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    code, text = command(tmp_path / "out", "--from-store", tmp_path, *arguments)
    assert code != 0
    assert message in text

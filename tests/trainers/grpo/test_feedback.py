"""Training from rewards that were posted afterwards, and from single calls of sessions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from loopline.agents.records import Candidate, Trajectory
from loopline.agents.rewards import Reward
from loopline.trainers.grpo.data import known_rewards
from tests.trainers.test_posted_rewards import record_rewards

from .recorded import a_run, a_step, record
from .test_command import command
from .tiny_grpo import SIZE, load, rollouts, write_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("feedback") / "base")


def single_calls(base: Path, count: int, **tags: str) -> list[Trajectory]:
    """Each sampled completion as a separate run, as a gateway records it: `SIZE` for each of
    `count` prompts, each in its own session."""
    runs: list[Trajectory] = []
    for played in rollouts(load(base), 0, count=count):
        for candidate in played.steps[0].candidates:
            number = len(runs)
            plain = Candidate(calls=candidate.calls)
            run = a_run(number, a_step([plain], agent="chat"), workflow="chat")
            task = run.run.task.model_copy(
                update={"instance": {}, "prompt": played.run.task.instance["number"].__str__()}
            )
            update = {"task": task, "tags": {"session": f"s{number}", **tags}}
            runs.append(run.model_copy(update={"run": run.run.model_copy(update=update)}))
    return runs


def posted(run: Trajectory, value: float, **changes: object) -> Reward:
    return Reward.model_validate(
        {"id": f"{run.run.id}/{value}", "run_id": run.run.id, "source": "user", "value": value}
        | changes
    )


def value_of(run: Trajectory) -> float:
    """The reward of a sampled answer: the number of its small ids."""
    (call,) = run.steps[0].calls
    return sum(token < 600 for token in call.output_ids) / len(call.output_ids)


def in_store(store: Path, runs: list[Trajectory], rewards: list[Reward]) -> Path:
    asyncio.run(record(store, runs))
    if rewards:
        asyncio.run(record_rewards(store, *rewards))
    return store


def learned_reward(output: Path) -> float:
    """Mean reward of the samples in the only step of a training."""
    [step] = json.loads((output / "report.json").read_text())["steps"]
    return step["policies"]["shared"]["reward"]


def arguments(store: Path, base: Path) -> tuple[object, ...]:
    return (
        "--from-store", store, "--base", base, "--grouping", "trajectory", "--batch", 2,
        "--learning-rate", 1e-3, "--reward-from", "feedback", "--json",
    )  # fmt: skip


def test_a_policy_learns_from_posted_rewards_and_runs_without_one_are_counted(
    base: Path, tmp_path: Path
) -> None:
    runs = single_calls(base, 3)
    rewards = [posted(run, value_of(run)) for run in runs[: 2 * SIZE]]
    store = in_store(tmp_path / "store", runs, [posted(runs[0], 0.9), *rewards])
    code, out, err = command("offline", tmp_path / "out", *arguments(store, base))
    assert code == 0, err
    assert f"{2 * SIZE + 1} posted rewards, 1 of them replaced by later versions" in err
    assert f"left out: {SIZE} × run without a posted reward, such as {runs[2 * SIZE].run.id}" in err
    summary = json.loads(out.splitlines()[-1])
    assert (summary["groups"], summary["runs"]) == (2, 3 * SIZE)
    assert summary["skipped"] == {"run without a posted reward": SIZE}
    mean = sum(map(value_of, runs[: 2 * SIZE])) / (2 * SIZE)
    assert learned_reward(tmp_path / "out") == pytest.approx(mean)


def test_a_resumed_training_uses_the_rewards_it_started_with(base: Path, tmp_path: Path) -> None:
    runs = single_calls(base, 2)
    store = in_store(tmp_path / "store", runs, [posted(run, value_of(run)) for run in runs])
    code, before, err = command("offline", tmp_path / "out", *arguments(store, base))
    assert code == 0, err
    asyncio.run(record_rewards(store, posted(runs[0], 5.0), batch=2))
    code, again, err = command("offline", tmp_path / "out", *arguments(store, base))
    assert code == 0, err
    assert again == before
    assert len(known_rewards(tmp_path / "out") or ()) == len(runs)
    code, _, err = command("offline", tmp_path / "new", *arguments(store, base))
    assert code == 0, err
    assert len(known_rewards(tmp_path / "new") or ()) == len(runs) + 1


def test_a_session_s_reward_reaches_its_run_and_a_tag_decides_which_runs_compete(
    base: Path, tmp_path: Path
) -> None:
    runs = single_calls(base, 1, task="A7")
    rewards = [
        posted(run, value_of(run), run_id=None, session=run.run.tags["session"]) for run in runs
    ]
    store = in_store(tmp_path / "store", runs, rewards)
    code, out, err = command("offline", tmp_path / "out", *arguments(store, base))
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["groups"] == 1


def test_only_the_listed_sources_count(base: Path, tmp_path: Path) -> None:
    runs = single_calls(base, 1)
    rewards = [posted(run, value_of(run)) for run in runs]
    noise = [posted(run, 100.0 * at, source="noise") for at, run in enumerate(runs)]
    store = in_store(tmp_path / "store", runs, [*rewards, *noise])
    named = ("--feedback-source", "user")
    code, _, err = command("offline", tmp_path / "out", *arguments(store, base), *named)
    assert code == 0, err
    assert learned_reward(tmp_path / "out") == pytest.approx(sum(map(value_of, runs)) / SIZE)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--scheme", "sparse"), "--scheme and --alpha only apply to recorded rewards"),
        (("--feedback-source", "nobody"), "run without a posted reward"),
    ],
)
def test_unusable_rewards_are_reported_before_any_training(
    base: Path, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    runs = single_calls(base, 1)
    store = in_store(tmp_path / "store", runs, [posted(run, value_of(run)) for run in runs])
    code, _, err = command("offline", tmp_path / "out", *arguments(store, base), *more)
    assert code != 0
    assert message in err
    assert not (tmp_path / "out").exists()


def test_a_source_without_the_requested_rewards_is_refused(base: Path, tmp_path: Path) -> None:
    store = in_store(tmp_path / "store", single_calls(base, 1), [])
    code, _, err = command(
        "offline", tmp_path / "out", "--from-store", store, "--base", base,
        "--feedback-source", "user",
    )  # fmt: skip
    assert code != 0
    assert "--feedback-source only applies with --reward-from feedback" in err

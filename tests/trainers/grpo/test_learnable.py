"""Groups without anything to learn from: all of their completions ran into their limit, or all of
their rewards are equal. They are counted by reason and by policy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.records import Trajectory
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.groups import seal
from loopline.trainers.grpo.learnable import TRUNCATED, group_worth
from loopline.trainers.grpo.loop.page import render as loop_page
from loopline.trainers.grpo.loop.round_groups import seal_round
from loopline.trainers.grpo.page import render
from loopline.trainers.grpo.pipeline import StepListener, train
from loopline.trainers.grpo.report import summaries
from loopline.trainers.grpo.stream import step_batches
from tests.runtime.parsed_page import ParsedPage

from .recorded import record
from .test_loop_report import a_report, a_round
from .tiny_grpo import data_in, load, rollouts, sealing_of, settings_of, write_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("learnable") / "base")


def cut(run: Trajectory, but: int = 0) -> Trajectory:
    """The same run, with all completions at their limit except the first ones of each step."""
    steps = [
        step.model_copy(
            update={
                "candidates": tuple(
                    candidate
                    if at < but
                    else candidate.model_copy(
                        update={
                            "calls": tuple(
                                call.model_copy(update={"finish_reason": "length"})
                                for call in candidate.calls
                            )
                        }
                    )
                    for at, candidate in enumerate(step.candidates)
                )
            }
        )
        for step in run.steps
    ]
    return run.model_copy(update={"steps": tuple(steps)})


def test_a_training_with_only_truncated_completions_fails_and_says_what_to_do(
    base: Path, tmp_path: Path
) -> None:
    asyncio.run(record(tmp_path / "store", [cut(run) for run in rollouts(load(base), 0)]))
    data = data_in(tmp_path / "store", load(base))
    pattern = (
        r"of the other 3 all completions ran into their limit; .*--max-tokens.*--truncated keep"
    )
    with pytest.raises(TrainingError, match=pattern):
        train(settings_of(), data, load(base), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    train(settings_of(truncated="keep"), data, load(base), tmp_path / "out")
    trained = load_file(tmp_path / "out/policies/shared/model.safetensors")
    before = load_file(base / "model.safetensors")
    assert not all(torch.equal(trained[name], before[name]) for name in before)


def test_groups_of_only_truncated_completions_take_no_place_in_a_batch_and_are_counted(
    base: Path, tmp_path: Path
) -> None:
    runs = rollouts(load(base), 0, count=4)
    asyncio.run(record(tmp_path / "store", [*map(cut, runs[:2]), *runs[2:]]))
    data, messages = data_in(tmp_path / "store", load(base)), list[str]()
    report = train(
        settings_of(batch=3),
        data,
        load(base),
        tmp_path / "out",
        watch=StepListener(say=messages.append),
    )
    (step,) = report.steps
    assert step.policies["shared"].groups == 2
    assert (step.truncated, report.truncated, report.zero_variance) == (2, 2, 0)
    assert messages[0].startswith(f"left out: 2 × {TRUNCATED}; ")
    assert f"{TRUNCATED}2" in ParsedPage(render(report)).text.partition("Left out")[2]


def test_a_group_with_one_whole_completion_is_learned_from_as_before(base: Path) -> None:
    loaded = load(base)
    groups = seal([cut(run, but=1) for run in rollouts(loaded, 0)], sealing_of(loaded)).records
    (batch,) = step_batches(groups, settings_of(batch=99))
    assert len(batch.groups) == 3
    assert {group_worth(group, settings_of()) for group in groups} == {"trained"}


def test_a_loop_skips_truncated_groups_as_its_replay_does(base: Path) -> None:
    """Further puzzles are therefore played for the missing groups."""
    loaded = load(base)
    runs = rollouts(loaded, 0, count=5)
    runs = [*map(cut, runs[:2]), *runs[2:]]
    settings = settings_of(batch=99, staleness=0)
    harvest = seal_round(
        runs, sealing_of(loaded), {("llm", 0): 0}, first=0, number=1, settings=settings
    )
    assert harvest.counts == {"trained": 3, "truncated": 2}
    (replayed,) = step_batches(seal(runs, sealing_of(loaded)).records, settings)
    assert harvest.batch(0, settings.seed) == replayed
    assert replayed.truncated == 2


def test_groups_of_equal_rewards_count_for_a_policy_that_skips_their_step(
    base: Path, tmp_path: Path
) -> None:
    """The testers of version 0 all earn the same."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loaded, agents = load(base), ("coder", "tester")
    first = [evened(run, "tester") for run in rollouts(loaded, 0, agents=agents)]
    asyncio.run(record(tmp_path / "store", [*first, *rollouts(loaded, 1, agents=agents)]))
    settings = settings_of(policies="per-role", batch=99)
    report = train(settings, data_in(tmp_path / "store", loaded), load(base), tmp_path / "out")
    assert [step.zero_variance for step in report.steps] == [{"tester": 3}, {}]
    assert [set(step.policies) for step in report.steps] == [{"coder"}, {"coder", "tester"}]
    shares = {name: item.zero_variance_share for name, item in summaries(report.steps).items()}
    assert shares == {"coder": 0.0, "tester": 0.5}
    events: Any = EventAccumulator(str(tmp_path / "out/curves/tester"))
    drawn = events.Reload().Scalars("zero-variance share")
    assert [(item.step, item.value) for item in drawn] == [(1, 1.0), (2, 0.0)]


def evened(run: Trajectory, agent: str) -> Trajectory:
    """The same run, with one reward for all of the agent's completions."""
    steps = [
        step
        if step.agent != agent
        else step.model_copy(
            update={
                "candidates": tuple(
                    candidate.model_copy(update={"reward_parts": {"team": 1.0}})
                    for candidate in step.candidates
                )
            }
        )
        for step in run.steps
    ]
    return run.model_copy(update={"steps": tuple(steps)})


def test_the_page_of_a_loop_shows_how_many_completions_were_truncated() -> None:
    text = ParsedPage(loop_page(a_report(a_round(truncated=2), a_round(2, truncated=3)))).text
    assert f"{TRUNCATED}5" in text.partition("Left out")[2]

"""Recorded runs that are kept out of training because of their tasks or tags."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopline.agents.environments import api_worlds
from loopline.agents.environments.environment import Instance
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import environments, find, split_of_task
from loopline.agents.errors import InvalidTask
from loopline.agents.records import Run, Task, Trajectory
from loopline.trainers.data.held_out import HELD_OUT, NOT_REBUILT, SHOWN, require_training
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.errors import UnreadableData
from loopline.trainers.grpo.data import read_data
from loopline.trainers.grpo.groups import Sealing
from tests.trainers.grpo.recorded import a_candidate, a_run, a_step, record

GAMES = environments.names()


def drawn(game: str, split: Split, count: int) -> list[Instance]:
    environment = find(game)
    levels = environment.levels(4 if game == "sudoku" else None, {}, {})
    return environment.puzzles(split, 3, count, levels)


def a_run_of(task: Task, **tags: str) -> Run:
    return a_run(1).run.model_copy(update={"task": task, "tags": tags})


def why(run: Run, split: str = "train") -> str | None:
    try:
        require_training(run, split)
    except Unreadable as error:
        return error.reason
    return None


@pytest.mark.parametrize("game", GAMES)
def test_a_puzzle_s_content_decides_its_split_regardless_of_the_run_s_tags(game: str) -> None:
    for split in Split:
        for puzzle in drawn(game, split, 3):
            assert split_of_task(puzzle.task) is split
            reason = None if split is Split.TRAIN else HELD_OUT
            assert why(a_run_of(puzzle.task)) == reason
            tags = {"bench": "puzzles", "item": f"puzzles/{game}/{split}/{puzzle.id}"}
            assert why(a_run_of(puzzle.task, **tags)) == reason


def test_an_instruction_of_a_simulated_world_decides_its_own_split() -> None:
    for split in api_worlds.Split:
        (instance,) = api_worlds.instances(split, 4, 1)
        reason = None if split is api_worlds.Split.TRAIN else HELD_OUT
        assert why(a_run_of(instance.task)) == reason


def test_a_training_on_another_split_allows_that_split_and_train_but_no_third() -> None:
    learned_in = api_worlds.Split.UNSEEN_WORDINGS
    for split in api_worlds.Split:
        (instance,) = api_worlds.instances(split, 4, 1)
        allowed = split in (api_worlds.Split.TRAIN, learned_in)
        assert why(a_run_of(instance.task), learned_in) == (None if allowed else HELD_OUT)


def test_levels_of_a_published_test_set_are_held_out_regardless_of_their_content() -> None:
    (puzzle,) = drawn("sokoban", Split.TRAIN, 1)
    item = "puzzles/boxoban/unfiltered/test/000/7"
    assert why(a_run_of(puzzle.task, bench="puzzles", item=item)) == HELD_OUT
    test = {"bench": "puzzles", "item": "x", "split": "boxoban/unfiltered/test"}
    assert why(a_run_of(puzzle.task, **test)) == HELD_OUT
    train = {"bench": "puzzles", "item": "x", "split": "boxoban/unfiltered/train"}
    assert why(a_run_of(puzzle.task, **train)) is None


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({}, None),
        ({"round": "1", "wave": "1"}, None),
        ({"bench": "math", "item": "math/mbpp/611", "split": "train"}, None),
        ({"bench": "math", "item": "math/gsm8k/train/17"}, None),
        ({"bench": "math", "item": "math/gsm8k/test/17", "split": "test"}, HELD_OUT),
        ({"bench": "math", "item": "math/gsm8k/test/17"}, HELD_OUT),
        ({"bench": "math", "item": "math/aime24/60"}, HELD_OUT),
        ({"bench": "math"}, HELD_OUT),
    ],
)
def test_for_other_tasks_the_benchmark_s_tags_decide(
    tags: dict[str, str], reason: str | None
) -> None:
    assert why(a_run_of(Task(environment="math", prompt="1 + 1?"), **tags)) == reason


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"bench": "code", "item": "code/mbpp/611", "split": "train"}, SHOWN),
        ({"bench": "code", "item": "code/mbpp/11", "split": "test"}, HELD_OUT),
        ({"round": "1", "wave": "1"}, None),
    ],
)
def test_trainings_learn_programs_from_loop_tasks_and_never_from_benchmark_problems(
    tags: dict[str, str], reason: str | None
) -> None:
    """`bench code` shows the tests that it counts; tasks of `bench tasks` are rewarded by
    others."""
    assert why(a_run_of(Task(environment="code", prompt="Double it."), **tags)) == reason


def test_runs_of_the_code_benchmark_are_refused_with_a_pointer_to_bench_tasks() -> None:
    run = a_run_of(Task(environment="code", prompt="?"), bench="code", split="train")
    with pytest.raises(Unreadable, match="`bench tasks`"):
        require_training(run)


def test_a_puzzle_unknown_to_its_environment_is_reported() -> None:
    task = Task(environment="sudoku", instance={"givens": []}, prompt="Solve it.")
    with pytest.raises(InvalidTask, match="no sudoku instance"):
        split_of_task(task)
    with pytest.raises(Unreadable, match=f"{NOT_REBUILT}: no sudoku instance"):
        require_training(a_run_of(task))


def test_a_training_from_a_store_skips_its_test_puzzles(
    tmp_path: Path,
) -> None:
    """`bench puzzles --candidates 4` records groups of test puzzles there."""
    runs: list[Trajectory] = []
    for number, split in enumerate((Split.TRAIN, Split.TEST)):
        (puzzle,) = drawn("plan_path", split, 1)
        run = a_run(number, a_step([a_candidate(0.0), a_candidate(1.0)]))
        puzzle_run = run.run.model_copy(update={"task": puzzle.task})
        runs.append(run.model_copy(update={"run": puzzle_run}))
    asyncio.run(record(tmp_path / "both", runs))
    sealing = Sealing(size=2, belongs=lambda call: True, max_context=64)
    data = read_data(tmp_path / "both", None, sealing)
    (group,) = data.groups
    assert group.members[0].origin.startswith(runs[0].run.id)
    (skipped,) = data.left_out
    assert (skipped.where, skipped.reason, skipped.detail) == (runs[1].run.id, HELD_OUT, "test")
    asyncio.run(record(tmp_path / "test", runs[1:]))
    with pytest.raises(UnreadableData, match=f"no complete group of 2.*1 × {HELD_OUT}"):
        read_data(tmp_path / "test", None, sealing)

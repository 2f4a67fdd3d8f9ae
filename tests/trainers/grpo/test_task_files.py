"""Files of tasks that a loop plays in place of a game: reading them, and drawing a round's
tasks."""

from __future__ import annotations

import hashlib
from itertools import chain, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.environments.code import CodeQuestion, team
from loopline.agents.environments.code.team import CodeInstance, CodeSetting
from loopline.agents.environments.game import Scheme
from loopline.agents.environments.math_team import MathInstance, MathQuestion
from loopline.agents.environments.plan_path.generation import Difficulty, instances
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import find
from loopline.agents.errors import InvalidOptions
from loopline.agents.records import Task
from loopline.trainers.data.questions import Question
from loopline.trainers.data.task_files import read_tasks
from loopline.trainers.errors import UnreadableData
from loopline.trainers.grpo.loop.planning import plan_batch, task_indices
from loopline.trainers.grpo.loop.settings import LoopSettings

from .test_command import command
from .tiny_grpo import settings_of, write_base


def a_sum(number: int) -> Task:
    question = MathQuestion(id=f"t/{number}", statement=f"1 + {number}?")
    return MathInstance(question=question, judged_as="0" * 64).task


def a_program(setting: CodeSetting) -> Task:
    question = CodeQuestion(id="t/double", statement="Double.")
    return CodeInstance(question=question, judged_as="0" * 64, setting=setting).task


def written(path: Path, *lines: Task | str) -> Path:
    texts = (line if isinstance(line, str) else line.model_dump_json() for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def settings(path: Path, **changes: object) -> LoopSettings:
    return LoopSettings.model_validate(
        {
            "grpo": settings_of(weights="lora", staleness=0), "policies": {}, "rounds": 2,
            "tasks": read_tasks(path).about, "puzzles": 2, "most_puzzles": 4, **changes,
        }
    )  # fmt: skip


# ---- what is read ----


def test_a_file_is_identified_by_its_hash_and_has_one_environment_and_team(tmp_path: Path) -> None:
    path = written(tmp_path / "sums.jsonl", a_sum(1), "", a_sum(2))
    task_file = read_tasks(path)
    assert task_file.tasks == (a_sum(1), a_sum(2))
    assert task_file.about.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (task_file.about.environment, task_file.about.team) == (
        "math",
        ("reasoner", "tool_user"),
    )
    assert settings(path).subject == "2 tasks of math"


def test_a_puzzle_is_played_by_the_team_of_its_instance(tmp_path: Path) -> None:
    (grid,) = instances("train", 1, 1, Difficulty(rows=5, columns=5))
    task_file = read_tasks(written(tmp_path / "grids.jsonl", grid.task))
    assert (task_file.about.environment, task_file.about.team) == (
        "plan_path", ("tool_agent", "plan_agent"),
    )  # fmt: skip


QUESTION = Task(prompt="What is 1 + 1?")
FOREIGN = a_sum(1).model_copy(update={"instance": {"question": "1 + 1?"}})
ALONE = a_program(CodeSetting(team=("coder",)))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((a_sum(1), "{"), "tasks.jsonl:2: not JSON"),
        ((a_sum(1), '{"prompt": ""}'), "tasks.jsonl:2: not the expected fields (prompt: "),
        ((QUESTION,), "tasks.jsonl:1: no task of a team (workflow 'pair' plays puzzles, code and"),
        ((FOREIGN,), "tasks.jsonl:1: no task of a team (no math instance: question: "),
        ((), "tasks.jsonl contains no task: create it with `bench tasks`"),
        ((a_sum(1), ALONE), "tasks.jsonl:2 is a task of code for coder, but line 1 is one of math"),
        ((ALONE, a_program(CodeSetting())), "tasks.jsonl:2 is a task of code for coder, tester,"),
        ((a_sum(1), a_sum(2), a_sum(1)), "tasks.jsonl:3 repeats the task of line 1: remove one"),
    ],
)
def test_a_line_that_no_loop_can_play_is_reported(
    tmp_path: Path, lines: tuple[Task | str, ...], message: str
) -> None:
    path = written(tmp_path / "tasks.jsonl", *lines)
    with pytest.raises(UnreadableData) as raised:
        read_tasks(path)
    assert f"{tmp_path}/{message}" in str(raised.value)


@pytest.mark.parametrize(
    ("game", "size"),
    [("plan_path", 5), ("sokoban", None), ("sudoku", 4), ("word_problems", None)],
)
@pytest.mark.parametrize("split", [Split.TEST, Split.VALIDATION])
def test_puzzles_held_out_from_training_are_refused_by_line(
    game: str, size: int | None, split: Split, tmp_path: Path
) -> None:
    environment = find(game)
    level = environment.levels(size, {}, {})
    (training_puzzle,) = environment.puzzles(Split.TRAIN, 1, 1, level)
    held_out_puzzles = environment.puzzles(split, 1, 3, level)
    path = written(
        tmp_path / "tasks.jsonl",
        training_puzzle.task,
        *(puzzle.task for puzzle in held_out_puzzles),
    )
    with pytest.raises(UnreadableData) as raised:
        read_tasks(path)
    assert (
        f"{path}:2 is a {game} puzzle of the {split} split, and 2 later lines of a held-out one: "
        "these are for benchmarks and for choosing settings. Remove such lines"
    ) in str(raised.value)
    assert read_tasks(written(path, training_puzzle.task)).tasks == (training_puzzle.task,)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnreadableData, match=r"none\.jsonl:1: the file cannot be read \(No such"):
        read_tasks(tmp_path / "none.jsonl")


# ---- what is paid ----


@pytest.mark.parametrize("agents", [None, ("tester",), ("coder", "tester")])
def test_the_sparse_scheme_is_refused_if_a_tester_learns(
    agents: tuple[str, ...] | None, tmp_path: Path
) -> None:
    path = written(tmp_path / "programs.jsonl", a_program(CodeSetting()))
    with pytest.raises(InvalidOptions, match=r"--scheme sparse: .* tester .* --agent coder"):
        sparse(path, agents=agents).require_playable()


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        (a_program(CodeSetting()), {"agents": ("coder",)}),
        # With whole runs the tester is rewarded for its team's result.
        (a_program(CodeSetting()), {"grouping": "trajectory"}),
        (a_program(CodeSetting(team=("coder",))), {}),
        (a_sum(1), {}),
    ],
)
def test_the_sparse_scheme_is_accepted_if_it_rewards_every_learning_agent(
    task: Task, changes: dict[str, object], tmp_path: Path
) -> None:
    sparse(written(tmp_path / "tasks.jsonl", task), **changes).require_playable()


@pytest.mark.parametrize(("scheme", "different"), [("paper", 2), ("dense", 2), ("sparse", 1)])
def test_all_schemes_except_sparse_distinguish_a_tester_s_tests(
    scheme: Scheme, different: int
) -> None:
    rewards = {
        team.tester_rewards(0.5, written=True, right=good, agrees=good).total(scheme)
        for good in (False, True)
    }
    assert len(rewards) == different


def sparse(path: Path, **changes: object) -> LoopSettings:
    """Settings before any validation."""
    grpo = settings_of(weights="lora", staleness=0, reward={"scheme": "sparse"}, **changes)
    return settings(path).model_copy(update={"grpo": grpo})


# ---- what is drawn ----


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 2**31))
def test_the_rounds_pass_through_the_file_and_meet_every_task_once_per_pass(
    count: int, first: int, seed: int
) -> None:
    waves = [
        list(islice(task_indices(count, first, seed, number), first))
        for number in range(1, 3 * count // first + 2)
    ]
    met = list(chain.from_iterable(waves))
    for begin in range(0, len(met) - count + 1, count):
        assert sorted(met[begin : begin + count]) == list(range(count))
    assert all(len(set(wave)) == min(first, count) for wave in waves)


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 9), st.integers(1, 40))
def test_tasks_that_replace_groups_without_a_signal_are_new_while_the_file_has_more(
    count: int, first: int, number: int, more: int
) -> None:
    begun = list(islice(task_indices(count, first, 7, number), first))
    further = list(islice(task_indices(count, first, 7, number), first, first + more))
    assert len(set(further)) == min(more, count)
    remaining = count - len(set(begun))
    assert not set(further[:remaining]) & set(begun)


def test_a_wave_is_planned_with_the_same_tasks_of_the_file_every_time(tmp_path: Path) -> None:
    tasks = [a_sum(number) for number in range(5)]
    loop_settings = settings(written(tmp_path / "sums.jsonl", *tasks))
    questions = [Question(id=task.prompt, task=task) for task in tasks]

    def wave(number: int, played: int, count: int) -> list[Task]:
        planned = plan_batch(
            loop_settings, number, 1, played=played, count=count, questions=questions
        )
        return [item.task for item in planned.runs]

    assert wave(1, 0, 2) == wave(1, 0, 2)
    together = wave(1, 0, 2) + wave(1, 2, 3)
    assert sorted(item.prompt for item in together) == sorted(item.prompt for item in tasks)
    assert not [item for item in wave(2, 0, 2) if item in wave(1, 0, 2)]


# ---- the command line ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--game", "sudoku"), "--game only applies with generated puzzles, not with --tasks"),
        (("--size", 5), "--size only applies with generated puzzles"),
        (("--difficulty", "boxes=2"), "--difficulty only applies with generated puzzles"),
        (("--setting", "turns=2"), "--setting only applies with generated puzzles"),
        (("--scheme", "progress"), "--scheme progress: the progress of a team of math"),
        (("--agent", "coder"), "--agent: no agent of the team (reasoner, tool_user)"),
        (("--most-puzzles", 2), "--most-puzzles 2 can't be less than --puzzles 64"),
        ((), "is an adapter of another base than micro:llm"),
    ],
)
def test_invalid_options_for_tasks_are_reported_before_anything_is_written(
    tmp_path: Path,
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    message: str,
) -> None:
    monkeypatch.setenv("LOOPLINE_PROFILE", "petting")
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    path = written(tmp_path / "sums.jsonl", a_sum(1))
    code, _, answer = command(
        "loop", tmp_path / "out", "--base", base, "--tasks", path, "--weights", "lora",
        "--redis-url", "redis://127.0.0.1:1", *arguments,
    )  # fmt: skip
    assert code != 0
    assert message in answer
    assert not (tmp_path / "out").exists()


def test_a_puzzle_that_is_held_out_is_refused_before_it_is_played(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPLINE_PROFILE", "petting")
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    grids = [
        instances(split, 1, 1, Difficulty(rows=5, columns=5))[0] for split in ("train", "test")
    ]
    path = written(tmp_path / "grids.jsonl", *(grid.task for grid in grids))
    code, _, answer = command(
        "loop", tmp_path / "out", "--base", base, "--tasks", path, "--weights", "lora",
        "--redis-url", "redis://127.0.0.1:1",
    )  # fmt: skip
    assert code != 0
    assert f"--tasks: {path}:2 is a plan_path puzzle of the test split" in answer


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("tasks") / "base")

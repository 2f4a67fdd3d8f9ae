"""Sudoku: unique puzzles, splits by whole solutions, and checks that cannot be cheated."""

from __future__ import annotations

import functools
from itertools import islice
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.environments.game import replay_episode
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.sudoku import SUDOKU, solver
from loopline.agents.environments.sudoku.generation import Difficulty, instances, solutions_of_4
from loopline.agents.environments.sudoku.instance import SudokuInstance, SudokuSetting
from loopline.agents.environments.sudoku.rules import conflicts
from loopline.agents.environments.sudoku.solver import Grid, blank_grid, completions
from loopline.agents.environments.sudoku.verification import check_grid
from loopline.agents.environments.team_episode import PLAN, TOOL
from loopline.agents.environments.tool_program import ProgramRun
from loopline.agents.errors import InvalidTask
from loopline.agents.records import JsonObject
from tests.agents.environments.exact_cover import solutions
from tests.agents.environments.sample_size import FEWER, INSTANCES, TIMEOUT, by_split

GIVENS = ((1, 0, 0, 0), (0, 0, 0, 2), (0, 3, 0, 0), (0, 0, 4, 0))
SOLVED = ((1, 2, 3, 4), (3, 4, 1, 2), (4, 3, 2, 1), (2, 1, 4, 3))
"""The completion of `GIVENS`."""
OTHER = ((2, 1, 4, 3), (4, 3, 2, 1), (3, 4, 1, 2), (1, 2, 3, 4))
"""A valid grid that solves another puzzle, such as a prompt's example."""


def small(**setting: object) -> SudokuInstance:
    return SudokuInstance(givens=GIVENS, setting=SudokuSetting.model_validate(setting))


def alone(**setting: object) -> SudokuInstance:
    return small(team=["plan_agent"], **setting)


def whole(grid: Grid) -> str:
    return f"#### {[list(row) for row in grid]}"


def cells(*writes: tuple[int, int, int]) -> str:
    return f"#### {list(writes)}"


@functools.cache
def sample(size: Literal[4, 9]) -> tuple[SudokuInstance, ...]:
    return tuple(instances("train", 3, 30, Difficulty(size=size)))


def one_of(size: Literal[4, 9], index: int) -> SudokuInstance:
    return sample(size)[index]


sizes: st.SearchStrategy[Literal[4, 9]] = st.sampled_from((4, 9))
any_instance = st.builds(one_of, sizes, st.integers(0, 29))
any_writes = st.lists(
    st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=12
)


@pytest.mark.timeout(TIMEOUT * 5)
@pytest.mark.parametrize(("size", "count"), [(4, INSTANCES), (9, FEWER)])
def test_a_second_solver_finds_the_same_unique_completion_of_every_instance(
    size: Literal[4, 9], count: int
) -> None:
    for split, share in by_split(count).items():
        for instance in instances(split, 7, share, Difficulty(size=size)):
            grids = list(islice(solutions(instance.givens), 2))
            assert grids == [[list(row) for row in instance.solution]]
            assert check_grid(instance, instance.solution).solved
            assert instance.split is split


def test_there_are_288_grids_of_4_x_4_and_each_is_in_one_split() -> None:
    grids = [grid for split in Split for grid in solutions_of_4(split)]
    assert len(grids) == len(set(grids)) == 288
    assert set(grids) == set(completions(blank_grid(4)))
    assert {split: len(solutions_of_4(split)) for split in Split} == {
        Split.TRAIN: 194,
        Split.VALIDATION: 33,
        Split.TEST: 61,
    }


@pytest.mark.parametrize("size", [4, 9])
def test_no_solution_grid_is_in_two_splits(size: Literal[4, 9]) -> None:
    count = 400 if size == 4 else 60
    solution_grids = {
        split: {i.solution for i in instances(split, 5, count, Difficulty(size=size))}
        for split in Split
    }
    assert sum(map(len, solution_grids.values())) == len(set().union(*solution_grids.values()))


@given(any_instance)
@settings(max_examples=40, deadline=None)
def test_the_solution_solves_as_a_grid_and_as_cells(instance: SudokuInstance) -> None:
    setting = instance.setting.model_copy(update={"team": (PLAN,)})
    task = instance.model_copy(update={"setting": setting}).task
    blanks = [
        (r + 1, c + 1, instance.solution[r][c])
        for r, row in enumerate(instance.givens)
        for c, digit in enumerate(row)
        if not digit
    ]
    for text in (whole(instance.solution), cells(*blanks)):
        episode = SUDOKU.reset(task.instance)
        rewards, observation, done = episode.apply(PLAN, text)
        assert done
        assert episode.verify().solved
        assert observation.refusals == ()
        share = len(blanks) / instance.size**2
        assert rewards.total() == pytest.approx(1 + 0.2 + 0.8 * share)
        assert rewards.total("dense") == pytest.approx(1.99)


@given(any_instance, any_writes)
@settings(max_examples=100, deadline=None)
def test_illegal_writes_change_nothing_and_given_digits_stay(
    instance: SudokuInstance, writes: list[tuple[int, int, int]]
) -> None:
    setting = instance.setting.model_copy(update={"turns": 12, "team": (PLAN,)})
    episode = SUDOKU.reset(instance.model_copy(update={"setting": setting}).task.instance)
    for write in writes:
        before = episode.state
        refusals = episode.apply(PLAN, cells(write)).observation.refusals
        if refusals:
            assert episode.state == before
        for row, givens in zip(episode.state, instance.givens, strict=True):
            assert all(g in (0, digit) for digit, g in zip(row, givens, strict=True))


@given(any_instance, any_writes, st.booleans())
@settings(max_examples=100, deadline=None)
def test_verify_agrees_with_the_second_solver_and_with_a_replay(
    instance: SudokuInstance, writes: list[tuple[int, int, int]], solve: bool
) -> None:
    """This includes grids that were spoilt before they were solved."""
    episode = SUDOKU.reset(instance.task.instance)
    episode.apply(TOOL, "#### [singles(4), conflicts()]")
    episode.apply(PLAN, cells(*writes))
    if solve and not episode.done:
        episode.apply(TOOL, "#### [candidates(1, 1)]")
        episode.apply(PLAN, whole(instance.solution))
    right = next(solutions(instance.givens))
    assert episode.verify().solved == ([list(row) for row in episode.state] == right)
    assert replay_episode(SUDOKU, instance.task.instance, episode.actions) == episode


def test_a_valid_grid_that_changes_given_digits_does_not_solve() -> None:
    """PettingLLMs a054fb1 checks only rows, columns and boxes: its prompt's example solves any
    puzzle."""
    episode = SUDOKU.reset(alone().task.instance)
    assert not conflicts(OTHER)
    rewards, observation, done = episode.apply(PLAN, whole(OTHER))
    assert not done
    assert rewards.total("sparse") == 0.0
    assert {refusal.reason for refusal in observation.refusals} == {"given"}
    assert not episode.verify().solved
    assert check_grid(small(), OTHER).reason == ("the given digit at row 1, column 1 was changed")


def test_given_digits_cannot_be_overwritten_cell_by_cell() -> None:
    episode = SUDOKU.reset(alone(turns=40).task.instance)
    for r, row in enumerate(OTHER):
        for c, digit in enumerate(row):
            episode.apply(PLAN, cells((r + 1, c + 1, digit)))
    assert episode.state[0][0] == 1
    assert not episode.verify().solved


def test_no_part_of_an_observation_counts_as_an_answer() -> None:
    for instance in sample(4):
        episode = SUDOKU.reset(instance.task.instance)
        episode.apply(TOOL, episode.observe(TOOL))
        lines = episode.observe(PLAN).split("\n")
        for text in (episode.observe(PLAN), *lines):
            trial = episode.copy()
            applied = trial.apply(PLAN, text)
            assert applied.observation.action == {}
            assert not trial.verify().solved


def test_verify_does_not_trust_the_episode_s_own_state() -> None:
    episode = SUDOKU.reset(small().task.instance)
    episode.state = SOLVED
    episode.done = True
    assert episode.verify().reason == "12 cells are blank"


def test_an_episode_without_turns_left_is_done_but_not_solved() -> None:
    episode = SUDOKU.reset(alone(turns=1).task.instance)
    rewards, _, done = episode.apply(PLAN, cells((1, 2, 4)))
    assert done
    assert rewards.total("sparse") == rewards.scores()["team.solved"] == 0.0
    assert not episode.verify().solved


def test_a_wrong_digit_is_shown_and_can_be_overwritten() -> None:
    episode = SUDOKU.reset(alone().task.instance)
    episode.apply(PLAN, cells((1, 2, 4)))
    assert "Now:\n1 4 . .\n" in episode.observe(PLAN)
    assert episode.apply(PLAN, whole(SOLVED)).done
    assert episode.verify().solved


def test_a_digit_that_contradicts_another_fills_nothing() -> None:
    """Four cells: a right one, a repeated digit, a given cell, and one outside."""
    episode = SUDOKU.reset(alone().task.instance)
    rewards, observation, _ = episode.apply(PLAN, cells((1, 2, 2), (1, 3, 1), (1, 1, 4), (5, 1, 1)))
    assert [refusal.reason for refusal in observation.refusals] == ["given", "outside"]
    scores = rewards.scores()
    assert scores["local.legal"] == 0.5
    assert scores["local.filled"] == 1 / 16
    assert scores["dense.filled"] == 2 / 16
    assert scores["dense.invalid"] == 1.0
    assert rewards.total() == pytest.approx(0.1 + 0.05 + 0.8 / 16)


def test_the_tool_agent_s_local_reward_pays_only_for_consistent_digits() -> None:
    episode = SUDOKU.reset(small().task.instance)
    rewards, observation, _ = episode.apply(
        TOOL, "#### [fill(1, 2, 2), fill(1, 3, 1), fill(1, 1, 4), candidates(2, 1)]"
    )
    assert observation.text.split("\n") == [
        "fill(1, 2, 2): fits so far",
        "fill(1, 3, 1): contradicts another digit",
        "fill(1, 1, 4): given",
        "candidates(2, 1): 3 4",
    ]
    assert rewards.total() == pytest.approx(0.1 + 0.1 * 0.75 + 0.8 * 0.5)


@pytest.mark.parametrize("digit", [0, 9])
def test_a_program_earns_nothing_for_digits_that_fit_no_cell(digit: int) -> None:
    episode = SUDOKU.reset(small(python=True).task.instance)
    line = cells((1, 2, digit))
    rewards, _, _ = episode.apply(
        TOOL, f"```python\nprint({line!r})\n```", ProgramRun(output=f"{line}\n", last=line)
    )
    assert rewards.total() == pytest.approx(0.1 + 0.1)


def test_singles_write_no_more_cells_than_the_setting_allows() -> None:
    episode = SUDOKU.reset(small(search=2).task.instance)
    action = episode.apply(TOOL, "#### [singles(99)]").observation.action
    assert isinstance(action["cells"], list)
    assert len(action["cells"]) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#### [[1, 2], [3, 4]]", "wrong_shape"),
        ("#### [[1, 2, 3, 4]]", "wrong_shape"),
        (whole(GIVENS), "empty"),
        ("#### " + str([(1, 1, 1)] * 17), "too_long"),
    ],
)
def test_an_answer_that_is_neither_a_grid_nor_cells_is_refused_with_the_reason(
    text: str, reason: str
) -> None:
    refusals = SUDOKU.reset(alone().task.instance).apply(PLAN, text).observation.refusals
    assert [refusal.reason for refusal in refusals] == [reason]


@pytest.mark.parametrize(
    ("givens", "message"),
    [
        ([[1, 1, 0, 0], *[[0] * 4] * 3], "it has no completion"),
        ([[1, 2, 3, 0], [0, 0, 0, 4], *[[0] * 4] * 2], "it has no completion"),
        ([[0] * 4] * 4, "it has several completions"),
        ([list(row) for row in SOLVED], "there is no blank cell"),
        ([[5, 0, 0, 0], *[[0] * 4] * 3], "digits are 0 (blank) to 4"),
        ([[0] * 5] * 5, "4 rows of 4 or 9 rows of 9"),
        ([[0] * 4] * 3, "givens: Tuple should have at least 4 items"),
    ],
)
def test_a_puzzle_without_exactly_one_completion_is_refused(
    givens: JsonObject, message: str
) -> None:
    """PettingLLMs a054fb1 generates 324 of 400 puzzles without a unique completion."""
    with pytest.raises(InvalidTask) as error:
        SUDOKU.reset({"givens": givens})
    assert message in str(error.value)


def test_a_puzzle_that_takes_too_long_to_check_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solver, "MAX_NODES", 3)
    with pytest.raises(InvalidTask, match="the number of completions is unknown after 3 steps"):
        SUDOKU.reset({"givens": [[0, 0, 0, 0], [0, 0, 0, 2], [0, 3, 0, 0], [1, 0, 4, 0]]})


def test_more_blanks_than_a_unique_puzzle_can_have_are_refused() -> None:
    with pytest.raises(ValueError, match="blanks must be from 1 to 12 of 4 x 4, not 4 to 13"):
        Difficulty(blanks=(4, 13))


def test_the_difficulty_sets_the_number_of_blanks() -> None:
    for instance in instances("test", 2, 50, Difficulty(blanks=(5, 6))):
        assert sum(row.count(0) for row in instance.givens) in (5, 6)


def test_a_listed_grid_names_every_cell_and_the_digits_ruled_out_for_blanks() -> None:
    episode = SUDOKU.reset(alone(listed=True, brief=True).task.instance)
    lines = episode.observe(PLAN).split("\n")
    assert lines[:4] == [
        "Given: r1c1=1 r2c4=2 r3c2=3 r4c3=4",
        "(1, 2, not 1 3)",
        "(1, 3, not 1 2 4)",
        "(1, 4, not 1 2)",
    ]
    assert len(lines) == 1 + 12 + 1
    episode.apply(PLAN, cells((1, 2, 2), (4, 1, 1)))
    assert episode.observe(PLAN).split("\n")[:3] == [
        "Given: r1c1=1 r2c4=2 r3c2=3 r4c3=4",
        "Written: r1c2=2 r4c1=1",
        "(1, 3, not 1 2 4)",
    ]


def test_progress_counts_right_digits_and_subtracts_wrong_ones() -> None:
    """The published rewards pay for a digit that merely fits; this one does not."""
    episode = SUDOKU.reset(alone().task.instance)
    to_fill = sum(row.count(0) for row in GIVENS)
    right, _, _ = episode.apply(PLAN, cells((1, 2, 2), (1, 3, 3)))
    wrong, _, _ = episode.apply(PLAN, cells((1, 4, 3)))
    mended, _, _ = episode.apply(PLAN, cells((1, 4, 4)))
    spoilt, _, _ = episode.apply(PLAN, cells((1, 2, 4)))
    assert right.total("progress") == pytest.approx(2 / to_fill + 0.1)
    assert wrong.total("progress") == pytest.approx(-1 / to_fill + 0.1)
    assert mended.total("progress") == pytest.approx(2 / to_fill + 0.1)
    assert spoilt.total("progress") == pytest.approx(-2 / to_fill + 0.1)

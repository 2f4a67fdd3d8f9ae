"""Plan-Path with the whole grid in sight: how it is shown, and its expert's search."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from pydantic import ValidationError

from loopline.agents.environments.grid import manhattan, short_name
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.plan_path import PLAN_PATH
from loopline.agents.environments.plan_path.generation import stream
from loopline.agents.environments.plan_path.instance import (
    PlanPathInstance,
    PlanPathSetting,
)
from loopline.agents.environments.plan_path.puzzle import open_episode
from loopline.agents.environments.plan_path.whole_grid import (
    PIECES,
    WHOLE_GRID,
    expert_answer,
    path_through,
    search_cells,
)
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import PLAN, TOOL
from loopline.trainers.grpo.arms.game import LearnedGame
from tests.agents.environments.test_plan_path import answer, small

COUNT = 60


def grids() -> list[PlanPathInstance]:
    assert WHOLE_GRID.lessons is not None
    return list(islice(stream(Split.TRAIN, 1, WHOLE_GRID.lessons.puzzle), COUNT))


def test_the_setting_can_list_the_walls_of_the_whole_grid() -> None:
    episode = PLAN_PATH.reset(small(walls=True, team=["plan_agent"]).task.instance)
    episode.apply(PLAN, answer("R"))
    about, *drawing = episode.observe(PLAN).split("\n")
    assert "#" not in about
    assert "row,column" in about
    assert drawing[:3] == ["Walls: 2,2 2,3 2,4", "A: 1,2. G: 5,5.", "Moves left: 15."]


def test_the_calls_name_cells_as_the_list_of_walls_does() -> None:
    episode = PLAN_PATH.open(small(walls=True))
    episode.apply(TOOL, f"{MARK} [step(D), step(R)]")
    assert "\nstep(D): 2,1\nstep(R): wall\n" in episode.observe(PLAN)


def test_a_grid_without_walls_lists_none() -> None:
    instance = small(walls=True, brief=True).model_copy(update={"grid": (".....",) * 5})
    assert PLAN_PATH.open(instance).observe(TOOL).startswith("Walls: none\nA: 1,1. G: 5,5.\n")


def test_a_grid_is_shown_in_one_way() -> None:
    with pytest.raises(ValidationError, match="set only one of them"):
        PlanPathSetting(listed=True, walls=True)


def test_the_expert_s_text_is_a_search_from_the_goal_a_path_and_moves() -> None:
    instance = small(walls=True, calls=3)
    episode = open_episode(instance)
    episode.apply(TOOL, f"{MARK} [step(R), step(R), step(R)]")
    episode.apply(PLAN, f"{MARK} [R, R, R]")
    assert expert_answer(instance, episode) == "\n".join(
        (
            "Search: 5,5 4,5 3,5 2,5 1,5 1,4",
            "Path: 1,4 1,5 2,5 3,5 4,5 5,5",
            "#### [step(R), step(D), step(D)]",
        )
    )


def test_a_search_comes_back_from_a_dead_end_cell_by_cell() -> None:
    grid = ("...#.", ".#...", ".####", ".....", ".....")
    room = small().model_copy(update={"grid": grid, "start": (4, 4), "goal": (0, 2)})
    cells = search_cells(room, room.start)
    into = ["1,3", "2,3", "2,4", "2,5", "1,5"]
    around = ["1,2", "1,1", "2,1", "3,1", "4,1", "4,2", "4,3", "4,4", "5,4", "5,5"]
    assert [short_name(cell) for cell in cells] == [*into, *into[-2::-1], *around]
    path = path_through(cells)
    assert [short_name(cell) for cell in path] == [*around[::-1], "1,3"]


@pytest.mark.parametrize("instance", grids(), ids=lambda instance: instance.id)
def test_the_path_leads_through_searched_cells_and_never_passes_one_twice(
    instance: PlanPathInstance,
) -> None:
    cells = search_cells(instance, instance.start)
    path = path_through(cells)
    assert (path[0], path[-1]) == (instance.start, instance.goal)
    assert set(path) <= set(cells) <= set(instance.distances)
    assert len(set(path)) == len(path) >= instance.shortest + 1
    assert all(manhattan(*pair) == 1 for pair in pairwise(path))


def test_a_search_from_a_closed_room_is_refused() -> None:
    room = small().model_copy(update={"grid": (".#...", "##...", ".....", ".....", ".....")})
    with pytest.raises(ValueError, match="no path"):
        search_cells(room, (0, 0))


def test_the_plan_agent_carries_out_a_proposal_and_searches_without_it() -> None:
    instance = small(walls=True, calls=4)
    episode = open_episode(instance)
    episode.apply(TOOL, f"{MARK} [step(D), step(D)]")
    assert expert_answer(instance, episode) == f"{MARK} [D, D]"
    alone = open_episode(instance)
    alone.apply(TOOL, "no calls")
    text = expert_answer(instance, alone)
    assert text is not None
    assert text.startswith("Search: 5,5 ")
    assert text.endswith(f"\n{MARK} [D, D, R, R, R, D, R, D]")


def test_the_expert_sees_no_way_when_the_moves_left_are_too_few() -> None:
    instance = small(walls=True, team=["plan_agent"], detour=1.0)
    episode = open_episode(instance)
    episode.apply(PLAN, answer("RLR"))
    assert expert_answer(instance, episode) is None


def test_the_expert_solves_nearly_every_puzzle_with_texts_within_the_limit() -> None:
    game = LearnedGame.of("loopline.agents.environments.plan_path.whole_grid:WHOLE_GRID")
    pieces = sorted(PIECES, key=len, reverse=True)

    def tokens(text: str) -> int:
        count = 0
        while text:
            text = text[next((len(p) for p in pieces if text.startswith(p)), 1) :]
            count += 1
        return count

    solved = 0
    for table in game.expert_tables(1, COUNT):
        episode = table.episode
        while not episode.done and (text := table.answer()) is not None:
            assert tokens(text) < game.training.reinforced.limit
            episode.apply(episode.agent, text)
        solved += episode.verify().solved
    # Once in a few hundred grids the depth-first search's way is too long.
    assert solved >= COUNT - 1

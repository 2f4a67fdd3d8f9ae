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
    is_free,
)
from loopline.agents.environments.plan_path.puzzle import open_episode
from loopline.agents.environments.plan_path.whole_grid import (
    PIECES,
    WHOLE_GRID,
    expert_answer,
    search_lines,
    search_text,
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
            "0: 5,5",
            "1: 4,5 5,4",
            "2: 3,5 4,4 5,3",
            "3: 2,5 3,4 4,3 5,2",
            "4: 1,5 3,3 4,2 5,1",
            "5: 1,4",
            "Path: 1,4 1,5 2,5 3,5",
            "#### [step(R), step(D), step(D)]",
        )
    )


@pytest.mark.parametrize("instance", grids(), ids=lambda instance: instance.id)
def test_line_n_of_a_search_has_every_cell_that_is_n_moves_from_the_goal(
    instance: PlanPathInstance,
) -> None:
    lines = search_lines(instance, instance.start)
    assert lines[-1] == [instance.start]
    assert len(lines) == instance.shortest + 1
    for number, line in enumerate(lines[:-1]):
        at_distance = {cell for cell, d in instance.distances.items() if d == number}
        assert set(line) == at_distance
        assert len(line) == len(at_distance)


@pytest.mark.parametrize("instance", grids(), ids=lambda instance: instance.id)
def test_the_path_follows_free_cells_and_comes_nearer_with_each(instance: PlanPathInstance) -> None:
    names = {short_name(cell): cell for cell in instance.distances}
    written = search_text(instance, instance.start).rpartition("Path: ")[2]
    path = [names[name] for name in written.split(" ")]
    assert path[0] == instance.start
    assert len(path) == instance.setting.calls + 1
    for cell, following in pairwise(path):
        assert manhattan(cell, following) == 1
        assert is_free(instance.grid, following)
        assert instance.distances[following] == instance.distances[cell] - 1


def test_a_search_from_a_closed_room_is_refused() -> None:
    room = small().model_copy(update={"grid": (".#...", "##...", ".....", ".....", ".....")})
    with pytest.raises(ValueError, match="no path"):
        search_lines(room, (0, 0))


def test_the_plan_agent_carries_out_a_proposal_and_searches_without_it() -> None:
    instance = small(walls=True, calls=4)
    episode = open_episode(instance)
    episode.apply(TOOL, f"{MARK} [step(D), step(D)]")
    assert expert_answer(instance, episode) == f"{MARK} [D, D]"
    alone = open_episode(instance)
    alone.apply(TOOL, "no calls")
    text = expert_answer(instance, alone)
    assert text is not None
    assert text.startswith("0: 5,5\n")
    assert text.endswith(f"\n{MARK} [D, D, D, D]")


def test_the_expert_sees_no_way_when_the_moves_left_are_too_few() -> None:
    instance = small(walls=True, team=["plan_agent"], detour=1.0)
    episode = open_episode(instance)
    episode.apply(PLAN, answer("RLR"))
    assert expert_answer(instance, episode) is None


def test_the_expert_s_texts_fit_into_the_limit_of_an_answer() -> None:
    game = LearnedGame.of("loopline.agents.environments.plan_path.whole_grid:WHOLE_GRID")
    pieces = sorted(PIECES, key=len, reverse=True)

    def tokens(text: str) -> int:
        count = 0
        while text:
            text = text[next((len(p) for p in pieces if text.startswith(p)), 1) :]
            count += 1
        return count

    for table in game.expert_tables(1, COUNT):
        while not table.episode.done:
            text = table.answer()
            assert text is not None
            assert tokens(text) < game.training.reinforced.limit
            table.episode.apply(table.episode.agent, text)

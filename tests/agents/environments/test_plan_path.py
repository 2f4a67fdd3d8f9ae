"""Plan-Path: solvable grids, strict rules, and rewards as published."""

from __future__ import annotations

import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.environments.game import ActionRecord, OutOfTurn, replay_episode
from loopline.agents.environments.plan_path import PLAN_PATH
from loopline.agents.environments.plan_path.generation import Difficulty, instances
from loopline.agents.environments.plan_path.instance import (
    PlanPathInstance,
    PlanPathSetting,
    shortest_path,
)
from loopline.agents.environments.plan_path.players import POLICIES, solves
from loopline.agents.environments.plan_path.verification import check_walk
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import PLAN, TOOL
from loopline.agents.errors import InvalidTask
from loopline.agents.records import JsonObject
from tests.agents.environments.sample_size import INSTANCES, TIMEOUT

GRID = (
    ".....",
    ".###.",
    ".....",
    ".....",
    ".....",
)


def small(**setting: object) -> PlanPathInstance:
    """The path from the top left to the bottom right takes 8 moves."""
    path_setting = PlanPathSetting.model_validate({"search": 8, **setting})
    return PlanPathInstance(grid=GRID, start=(0, 0), goal=(4, 4), setting=path_setting)


def answer(moves: str) -> str:
    return f"#### [{', '.join(moves)}]"


@functools.cache
def sample(split: Split) -> tuple[PlanPathInstance, ...]:
    return tuple(instances(split, 3, 60))


def one_of(split: Split, index: int) -> PlanPathInstance:
    return sample(split)[index]


any_instance = st.builds(one_of, st.sampled_from(Split), st.integers(0, 59))


def fewest_moves(instance: PlanPathInstance) -> int | None:
    """A second solver: a wave of bits that spreads over the whole grid at once."""
    width = len(instance.grid[0]) + 1
    free = 0
    for r, row in enumerate(instance.grid):
        for c, cell in enumerate(row):
            free |= (cell == ".") << (r * width + c)
    wave = 1 << (instance.start[0] * width + instance.start[1])
    goal = 1 << (instance.goal[0] * width + instance.goal[1])
    moves = 0
    while not wave & goal:
        wider = (wave | wave << 1 | wave >> 1 | wave << width | wave >> width) & free
        if wider == wave:
            return None
        wave, moves = wider, moves + 1
    return moves


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("split", Split)
def test_a_second_solver_finds_an_equally_short_path_in_every_instance(split: Split) -> None:
    for side, count in ((5, INSTANCES // 4), (10, INSTANCES // 2), (20, INSTANCES // 4)):
        for instance in instances(split, 7, count, Difficulty(rows=side, columns=side)):
            assert (
                fewest_moves(instance)
                == instance.shortest
                == len(shortest_path(instance, instance.start))
            )
            assert instance.split is split


@given(any_instance)
@settings(max_examples=60, deadline=None)
def test_a_shortest_path_solves_the_instance_and_earns_every_part_in_full(
    instance: PlanPathInstance,
) -> None:
    episode = PLAN_PATH.reset(instance.task.instance)
    episode.apply(TOOL, "#### [look(U)]")
    rewards, observation, done = episode.apply(
        PLAN, answer("".join(shortest_path(instance, instance.start)))
    )
    assert done
    assert episode.verify().solved
    assert observation.refusals == ()
    assert rewards.total() == pytest.approx(2.0)
    assert rewards.total("sparse") == 1.0
    assert rewards.scores()["dense.shortest"] == 1.0


@given(any_instance, st.lists(st.sampled_from("UDLR"), min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_illegal_moves_never_change_the_state(instance: PlanPathInstance, moves: list[str]) -> None:
    """Every single move is refused and changes nothing, or leads to a free adjacent cell."""
    setting = instance.setting.model_copy(update={"turns": 30, "team": (PLAN,)})
    episode = PLAN_PATH.reset(instance.model_copy(update={"setting": setting}).task.instance)
    for move in moves:
        before = episode.state
        refusals = episode.apply(PLAN, answer(move)).observation.refusals
        assert (episode.state == before) == bool(refusals)
        row, column = episode.state.at
        assert min(row, column) >= 0
        assert instance.grid[row][column] == "."
        if episode.done:
            break


@given(any_instance, st.lists(st.sampled_from("UDLR"), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_verify_agrees_with_the_second_solver_and_with_a_replay(
    instance: PlanPathInstance, moves: list[str]
) -> None:
    episode = PLAN_PATH.reset(instance.task.instance)
    episode.apply(TOOL, "#### [bfs(3)]")
    episode.apply(PLAN, answer("".join(moves)))
    remaining = fewest_moves(instance.model_copy(update={"start": episode.state.at}))
    assert episode.verify().solved == (remaining == 0)
    again = replay_episode(PLAN_PATH, instance.task.instance, episode.actions)
    assert again == episode
    assert again.observe(TOOL) == episode.observe(TOOL)


def test_verify_does_not_trust_the_episode_s_own_state() -> None:
    episode = PLAN_PATH.reset(small().task.instance)
    episode.state = type(episode.state)(at=(4, 4))
    episode.done = True
    assert episode.verify().reason == "the walk ends at row 1, column 1, not at the goal"


def test_a_trial_on_a_copy_leaves_the_episode_unchanged() -> None:
    episode = PLAN_PATH.reset(small().task.instance)
    episode.apply(TOOL, "#### [bfs(3)]")
    before = episode.copy()
    trial = episode.copy()
    trial.apply(PLAN, answer("DDDDRRRR"))
    assert trial.verify().solved
    assert episode == before
    assert not episode.verify().solved


def test_the_plan_agent_sees_the_tool_agent_s_action_of_the_same_turn() -> None:
    episode = PLAN_PATH.reset(small().task.instance)
    before = episode.observe(PLAN)
    episode.apply(TOOL, "#### [bfs(3), step(U)]")
    observation = episode.observe(PLAN)
    assert "bfs(3): D, D, D to row 4, column 1" in observation
    assert "It proposes [D, D, D, U]" in observation
    assert "proposes" not in before
    assert "bfs(3)" not in episode.observe(TOOL)


def test_the_plan_agent_has_no_calls() -> None:
    episode = PLAN_PATH.reset(small().task.instance)
    episode.apply(TOOL, "#### [look(U)]")
    assert "Calls:" not in episode.observe(PLAN)
    refusals = episode.apply(PLAN, "#### [bfs(8)]").observation.refusals
    assert [refusal.reason for refusal in refusals] == ["unknown_move"]


def test_a_tool_searches_no_farther_than_the_setting_allows() -> None:
    episode = PLAN_PATH.reset(small(search=2).task.instance)
    action = episode.apply(TOOL, "#### [bfs(99)]").observation.action
    assert action == {"moves": ["D", "D"]}


def test_a_proposal_does_not_move_the_real_state() -> None:
    episode = PLAN_PATH.reset(small().task.instance)
    rewards, _, done = episode.apply(TOOL, "#### [bfs(8)]")
    assert rewards.scores()["team.progress"] == 1.0
    assert not done
    assert not episode.verify().solved


def test_a_lone_tool_agent_s_proposal_is_executed() -> None:
    episode = PLAN_PATH.reset(small(team=["tool_agent"]).task.instance)
    assert episode.apply(TOOL, "#### [bfs(8)]").done
    assert episode.verify().solved


@given(
    any_instance,
    st.lists(st.text("UDLR", min_size=1, max_size=60), min_size=1, max_size=4),
)
def test_no_walk_that_misses_the_goal_earns_more_than_the_best_path(
    instance: PlanPathInstance, walks: list[str]
) -> None:
    """This uses `dense`, whose shaping depends only on the first and the last cell."""
    setting = PlanPathSetting(team=(PLAN,), turns=4)
    episode = PLAN_PATH.reset(instance.model_copy(update={"setting": setting}).task.instance)
    way = "".join(shortest_path(instance, instance.start))
    best = episode.copy().apply(PLAN, answer(way)).rewards.total("dense")
    earned, shaped = 0.0, 0.0
    for walk in walks:
        if not episode.done:
            paid = episode.apply(PLAN, answer(walk)).rewards
            earned += paid.total("dense")
            shaped += paid.scores()["dense.shaping"]
    at, goal = episode.state.at, instance.goal
    remaining = abs(at[0] - goal[0]) + abs(at[1] - goal[1])
    start = instance.start
    assert shaped == abs(start[0] - goal[0]) + abs(start[1] - goal[1]) - remaining
    assert earned < best or (episode.verify().solved and earned <= best + 1e-9)


def test_rewards_match_the_published_ones() -> None:
    """Of two legal moves one leads nearer, and two moves go into the border: 8 moves are needed."""
    played = small(team=["plan_agent"], rules="paper")
    episode = PLAN_PATH.reset(played.task.instance)
    rewards = episode.apply(PLAN, answer("UDUL")).rewards
    assert rewards.scores() == pytest.approx(
        {
            "team.progress": 0.0,
            "local.format": 1.0,
            "local.legal": 0.5,
            "local.shortest": 0.25,
            "dense.valid": 2.0,
            "dense.invalid": 2.0,
            "dense.goal": 0.0,
            "dense.shortest": 0.0,
            "dense.shaping": 0.0,
            "sparse.solved": 0.0,
            "progress.nearer": 0.0,
            "progress.format": 1.0,
            "mask": 1.0,
        }
    )
    assert rewards.weights()["dense.invalid"] == -0.10
    assert rewards.total() == pytest.approx(0.1 + 0.1 * 0.5 + 0.8 * 0.25)
    assert rewards.total("dense") == pytest.approx(-0.02 - 0.2)
    later = episode.apply(PLAN, answer("DDDD")).rewards
    assert later.scores()["team.progress"] == 0.5
    assert later.total(alpha=0.5) == pytest.approx(0.5 * 0.5 + 1.0)


def test_an_unreadable_answer_earns_no_local_part_and_uses_up_the_turn() -> None:
    episode = PLAN_PATH.reset(small(team=["plan_agent"]).task.instance)
    rewards, observation, _ = episode.apply(PLAN, "down, down")
    assert rewards.total() == 0.0
    assert observation.action == {}
    assert observation.refusals[0].reason == "no_answer"
    assert episode.turn == 1
    assert "Last turn: refused: no_answer" in episode.observe(PLAN)


def test_an_episode_without_turns_left_is_done_but_not_solved() -> None:
    episode = PLAN_PATH.reset(small(turns=2, team=["plan_agent"]).task.instance)
    for _ in range(2):
        rewards = episode.apply(PLAN, answer("U")).rewards
        assert rewards.total("sparse") == 0.0
    assert episode.done
    assert not episode.verify().solved
    with pytest.raises(OutOfTurn, match="ended after turn 2"):
        episode.apply(PLAN, answer("U"))


def test_the_agents_act_in_turn() -> None:
    episode = PLAN_PATH.reset(small().task.instance)
    with pytest.raises(OutOfTurn, match="tool_agent's turn, not plan_agent's"):
        episode.apply(PLAN, answer("D"))


def test_the_setting_decides_what_the_window_and_marks_show() -> None:
    episode = PLAN_PATH.reset(small(view=1, marks=True, team=["plan_agent"]).task.instance)
    episode.apply(PLAN, answer("D"))
    assert episode.observe(PLAN).split("\n")[1:4] == ["#*.", "#A#", "#.."]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": [1, 1]}, "start (1, 1) is not a free cell"),
        ({"goal": [0, 0]}, "the same cell"),
        ({"grid": ["....."] * 4}, "grid: Tuple should have at least 5 items"),
        ({"grid": [*GRID[:4], "...."]}, "the same 5 to 20 cells"),
        ({"grid": [*GRID[:3], "###.#", "....."], "goal": [4, 0]}, None),
        ({"grid": [*GRID[:3], "#####", "....."]}, "there is no path"),
        ({"colour": "red"}, "colour: Extra inputs"),
        ({"setting": {"turns": 0}}, "setting.turns"),
        ({"setting": {"team": ["plan_agent", "tool_agent"]}}, "tool_agent, then plan_agent"),
    ],
)
def test_an_instance_that_can_t_be_played_is_refused(
    change: JsonObject, message: str | None
) -> None:
    instance = {**small().task.instance, **change}
    if message is None:
        assert PLAN_PATH.reset(instance)
        return
    with pytest.raises(InvalidTask) as error:
        PLAN_PATH.reset(instance)
    assert message in str(error.value)


def test_no_layout_is_in_two_splits_even_turned_or_mirrored() -> None:
    layouts = {
        split: {i.layout for i in instances(split, 5, 400, Difficulty(rows=5, columns=5))}
        for split in Split
    }
    assert sum(map(len, layouts.values())) == len(set().union(*layouts.values()))
    turned = tuple("".join(column) for column in zip(*reversed(GRID), strict=True))
    mirrored = tuple(row[::-1] for row in turned)
    for grid in (turned, mirrored):
        copy = small().model_copy(update={"grid": grid})
        assert copy.layout == small().layout


def test_the_same_seed_gives_the_same_instances_and_a_longer_list_extends_a_shorter() -> None:
    assert instances("test", 4, 9)[:4] == instances("test", 4, 4)
    assert instances("test", 4, 4) != instances("test", 5, 4)


def test_an_instance_survives_a_json_round_trip() -> None:
    instance = instances("train", 1, 1)[0]
    stored = json.loads(json.dumps(instance.task.instance))
    assert PLAN_PATH.reset(stored) == PLAN_PATH.reset(instance.task.instance)


def test_an_impossible_split_or_difficulty_is_refused() -> None:
    with pytest.raises(ValueError, match="no split 'dev'; there are: train, validation, test"):
        instances("dev", 1, 1)
    with pytest.raises(ValueError, match="made no plan_path puzzle"):
        instances("train", 1, 1, Difficulty(rows=5, columns=5, obstacles=0.0, least_moves=9))


def test_stronger_handwritten_policies_solve_more_puzzles() -> None:
    puzzles = instances("test", 1, 60, Difficulty(setting=PlanPathSetting(view=2, marks=True)))
    solved = {
        name: sum(solves(policy, instance, seed=1) for instance in puzzles)
        for name, policy in POLICIES.items()
    }
    assert solved["oracle"] == 60
    assert (
        solved["random"]
        < solved["wall-blind greedy"]
        < solved["memoryless wall-aware greedy"]
        < solved["explorer"]
        <= solved["oracle"]
    )


def test_an_action_is_recorded_as_written() -> None:
    episode = PLAN_PATH.reset(small().task.instance)
    episode.apply(TOOL, "no calls")
    assert episode.actions == (ActionRecord(TOOL, "no calls"),)
    assert "refused: no_answer" in episode.observe(PLAN)


def test_going_back_loses_progress_where_the_published_rewards_pay_nothing() -> None:
    instance = PlanPathInstance(
        grid=(".....",) * 5, start=(0, 0), goal=(0, 4), setting=PlanPathSetting(team=(PLAN,))
    )
    episode = PLAN_PATH.reset(instance.task.instance)
    nearer, _, _ = episode.apply(PLAN, "#### [R, R]")
    back, _, _ = episode.apply(PLAN, "#### [L]")
    assert nearer.total("progress") == pytest.approx(0.5 + 0.1)
    assert back.total("progress") == pytest.approx(-0.25 + 0.1)
    assert back.scores()["team.progress"] == 0.0


FIXED = (
    "LLLRUURRRUUUUUDDDLLLRRRRRUDDUDDDDDDLLLLULLDDRRLRRRUUUUURDRDRRRRRDRRDDUURRRLLLLUU"
    "DDDDDDDDLRLLLLDLLUULRRRRUDDDUDDDDDDUDDDDUUUURRDUUURRLRRLRLLLDUDDDDDDDDDRRRLLLLLL"
    "LLLUUUDRDDDRRDDDRUUULLLLDDUUUUULLLUUUUDRRRULLLLLRRRUUUUUURRRULUUUULDDLLDDDDDDLLR"
    "RRDDDDRRLLRURRRRUUUUUUUURRRRDDLULDDDRUUUDDDDLLLLDDUUUUURUUUULLLLLLURRRUUURRRRDDD"
    "DDDRRRUUULDDDDDLLDLLLLRLLDDDRRRLURDRLURRLDDDLLDUDUUUUUUURLLLLLUUURUUUDDLLULLLDDD"
)
"""A search found these four answers of a hundred moves each for the paper's rules."""


def solved_by_fixed_answers(rules: str) -> int:
    """Return the number of solved grids out of 100 unseen ones."""
    setting = PlanPathSetting.model_validate({"rules": rules, "team": (PLAN,)})
    solved = 0
    for instance in instances("test", 11, 100, Difficulty(setting=setting)):
        episode = PLAN_PATH.reset(instance.task.instance)
        while not episode.done:
            at = 100 * episode.turn
            episode.apply(PLAN, answer(FIXED[at : at + 100]))
        solved += episode.verify().solved
    return solved


def test_fixed_answers_that_solve_most_grids_by_the_paper_s_rules_solve_few_here() -> None:
    assert solved_by_fixed_answers("paper") >= 60
    assert solved_by_fixed_answers("strict") <= 10


def test_an_answer_ends_at_its_first_illegal_move() -> None:
    episode = PLAN_PATH.reset(small(team=["plan_agent"]).task.instance)
    observation = episode.apply(PLAN, answer("DDLRRRR")).observation
    assert episode.state.at == (2, 0)
    assert [refusal.reason for refusal in observation.refusals] == ["outside"]
    assert "Last turn: 2 carried out, 1 refused (outside)" in episode.observe(PLAN)


def test_an_episode_ends_when_its_moves_are_used_up() -> None:
    """The shortest path has 8 moves; a detour of 1.25 allows 10."""
    episode = PLAN_PATH.reset(small(team=["plan_agent"], detour=1.25).task.instance)
    assert "Moves left: 10." in episode.observe(PLAN)
    episode.apply(PLAN, answer("DU" * 4))
    assert not episode.done
    observation = episode.apply(PLAN, answer("DDR")).observation
    assert episode.state.at == (2, 0)
    assert [refusal.reason for refusal in observation.refusals] == ["no_moves_left"]
    assert episode.done
    assert episode.verify().reason == "the walk ends at row 3, column 1, not at the goal"


def test_the_verifier_walks_no_farther_than_the_allowed_moves() -> None:
    walk = ("D", "U") * 5 + tuple("DDDDRRRR")
    strict, paper = small(), small(rules="paper")
    assert not check_walk(strict, [walk]).solved
    assert check_walk(paper, [walk]).solved


def test_a_walk_s_excess_over_the_shortest_path_is_measured() -> None:
    assert check_walk(small(), [tuple("DUDDDDRRRR")]).measures == {"moves_over_shortest": 2.0}
    assert check_walk(small(), [tuple("DDDDRRRR")]).measures == {"moves_over_shortest": 0.0}
    assert check_walk(small(), [tuple("DDDD")]).measures == {}


@given(any_instance, st.lists(st.text("UDLR", min_size=1, max_size=12), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_no_walk_is_longer_than_the_bound(instance: PlanPathInstance, walks: list[str]) -> None:
    setting = PlanPathSetting(team=(PLAN,), detour=1.5)
    bounded = instance.model_copy(update={"setting": setting})
    episode = PLAN_PATH.reset(bounded.task.instance)
    for walk in walks:
        if not episode.done:
            episode.apply(PLAN, answer(walk))
    assert episode.state.moves <= 1.5 * instance.shortest + 1
    assert episode.verify().solved == (episode.state.at == instance.goal)


def test_the_setting_can_list_the_cells_next_to_the_walker() -> None:
    instance = small(listed=True, marks=True, brief=True, team=["plan_agent"])
    episode = PLAN_PATH.reset(instance.task.instance)
    assert episode.observe(PLAN).split("\n")[0] == "U wall, D free, L wall, R free"
    episode.apply(PLAN, answer("D"))
    assert episode.observe(PLAN).split("\n")[0] == "U visited, D free, L wall, R wall"

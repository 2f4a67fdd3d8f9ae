"""A Python program as the tool agent's answer: its result reaches the episode as a fact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.environments.game import (
    Episode,
    OutOfTurn,
    ProgrammedEpisode,
    ProgramNotRun,
    replay_episode,
)
from loopline.agents.environments.plan_path import PLAN_PATH
from loopline.agents.environments.plan_path.instance import PlanPathInstance, PlanPathSetting
from loopline.agents.environments.plan_path.walk import Moves, Walk
from loopline.agents.environments.sokoban import SOKOBAN
from loopline.agents.environments.sokoban.instance import SokobanInstance, SokobanSetting
from loopline.agents.environments.sudoku import SUDOKU
from loopline.agents.environments.sudoku.instance import SudokuInstance, SudokuSetting
from loopline.agents.environments.team_episode import PLAN, TOOL, TeamEpisode
from loopline.agents.environments.tool_program import (
    MAX_LINE,
    MAX_PROGRAM_CHARS,
    ProgramRun,
    last_line,
)
from loopline.agents.environments.word_problem_team import WORD_PROBLEMS
from loopline.agents.environments.word_problem_team.instance import (
    Equation,
    WordProblemInstance,
    WordProblemSetting,
)
from loopline.agents.environments.word_problem_team.rules import Items, Work
from loopline.agents.records import JsonObject

PROGRAM = "```python\nprint('#### [R, R, D, D, R, R]')\n```"
RIGHT = ProgramRun(output="#### [R, R, D, D, R, R]\n", last="#### [R, R, D, D, R, R]")
"""The sandbox's report about that program."""

runs = st.builds(
    ProgramRun,
    output=st.text(max_size=60),
    last=st.one_of(st.text(max_size=30), st.sampled_from(["#### [R, U]", "#### [D, D, D]"])),
    trouble=st.sampled_from(["", "timed_out"]),
)


def instance(**setting: object) -> JsonObject:
    way = ("....#", "##..#", ".#...", "....#", "#...#")
    path_setting = PlanPathSetting.model_validate({"python": True, **setting})
    return PlanPathInstance(grid=way, start=(0, 0), goal=(2, 4), setting=path_setting).task.instance


def begun(**setting: object) -> TeamEpisode[Walk, Moves]:
    return PLAN_PATH.reset(instance(**setting))


def nuts(**setting: object) -> TeamEpisode[Work, Items]:
    problem_setting = WordProblemSetting.model_validate({"python": True, **setting})
    text = "Ada has 6 boxes with twelve nuts in each. She eats 7 of them. How many nuts are left?"
    solution = (
        Equation(left=6, operator="*", right=12, result=72),
        Equation(left=72, operator="-", right=7, result=65),
    )
    problem = WordProblemInstance(text=text, solution=solution, setting=problem_setting)
    return WORD_PROBLEMS.reset(problem.task.instance)


def proposing(items: str) -> ProgramRun:
    """The sandbox's report about a program with these last lines."""
    return ProgramRun(output=f"#### [{items}]\n", last=f"#### [{items}]")


def test_a_program_s_last_line_is_scored_as_a_proposal_and_leaves_the_puzzle_unchanged() -> None:
    episode = begun()
    before = episode.state
    rewards, observation, _ = episode.apply(TOOL, PROGRAM, RIGHT)
    assert observation.action == {"moves": ["R", "R", "D", "D", "R", "R"]}
    assert rewards.scores()["local.executed"] == rewards.scores()["local.format"] == 1.0
    assert rewards.total() == pytest.approx(2.0)
    assert episode.state == before


def test_the_plan_agent_sees_a_program_s_output_and_action_only_in_the_same_turn() -> None:
    episode = begun()
    episode.apply(TOOL, PROGRAM, RIGHT)
    observation = episode.observe(PLAN)
    assert "print('#### [R, R, D, D, R, R]')" in observation
    assert "It printed:\n```\n#### [R, R, D, D, R, R]\n```" in observation
    assert observation.split("\n")[-2] == "It proposes [R, R, D, D, R, R]"
    episode.apply(PLAN, "#### [R]")
    assert "print(" not in episode.observe(TOOL)
    assert "print(" not in begun().observe(PLAN)


def test_a_program_receives_its_writer_s_observation_and_a_time_limit() -> None:
    episode = begun(program_seconds=3)
    wanted = episode.to_run(TOOL, f"I think so.\n{PROGRAM}")
    assert wanted is not None
    assert wanted.program == "print('#### [R, R, D, D, R, R]')\n"
    assert wanted.stdin == episode.observe(TOOL)
    assert wanted.seconds == 3
    assert "3 seconds" in wanted.stdin
    assert "bfs" not in wanted.stdin


@pytest.mark.parametrize(
    ("text", "ran", "reasons", "parts"),
    [
        ("no program", None, ["no_program"], (0, 0, 0)),
        (f"```python\n{'#' * MAX_PROGRAM_CHARS}1\n```", None, ["no_program"], (0, 0, 0)),
        (PROGRAM, ProgramRun(trouble="timed_out"), ["program_failed"], (1, 0, 0)),
        (PROGRAM, ProgramRun(output="hm\n", last="hm"), ["no_answer"], (1, 1, 0)),
        (PROGRAM, ProgramRun(), ["no_answer"], (1, 1, 0)),
        (PROGRAM, ProgramRun(last="#### [X]"), ["unknown_move"], (1, 1, 0)),
        (PROGRAM, ProgramRun(last="#### [U]"), ["outside"], (1, 1, 0)),
    ],
)
def test_a_program_earns_a_tenth_each_for_form_and_run_and_the_rest_for_its_proposal(
    text: str, ran: ProgramRun | None, reasons: list[str], parts: tuple[int, int, int]
) -> None:
    episode = begun()
    rewards, observation, _ = episode.apply(TOOL, text, ran)
    assert [refusal.reason for refusal in observation.refusals] == reasons
    scores = rewards.scores()
    names = ("format", "executed", "shaping")
    assert tuple(scores[f"local.{name}"] for name in names) == parts
    assert scores["mask"] == parts[0]
    assert rewards.total() == pytest.approx(0.1 * (parts[0] + parts[1]))
    if not observation.action:
        assert "It proposes nothing" in episode.observe(PLAN)


def test_an_episode_never_runs_a_program_and_reports_who_must() -> None:
    episode = begun()
    before = episode.copy()
    with pytest.raises(ProgramNotRun, match="workflow pair, with a judge"):
        episode.apply(TOOL, PROGRAM)
    assert episode == before


def test_calls_are_refused_in_program_mode_and_programs_in_call_mode() -> None:
    refused = begun().apply(TOOL, "#### [bfs(3)]").observation.refusals
    assert [refusal.reason for refusal in refused] == ["no_program"]
    calls = begun(python=False)
    assert calls.to_run(TOOL, PROGRAM) is None
    assert calls.apply(TOOL, PROGRAM, RIGHT).observation.refusals
    assert calls.actions[0].ran is None


def test_a_lone_tool_agent_s_program_has_its_proposal_executed() -> None:
    episode = begun(team=["tool_agent"])
    applied = episode.apply(TOOL, PROGRAM, RIGHT)
    assert applied.done
    assert episode.verify().solved
    with pytest.raises(OutOfTurn):
        episode.apply(TOOL, PROGRAM, RIGHT)


@given(st.lists(st.tuples(st.sampled_from([PROGRAM, "none"]), runs), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_the_instance_the_texts_and_the_facts_determine_the_episode(
    turns: list[tuple[str, ProgramRun]],
) -> None:
    episode = begun()
    for text, ran in turns:
        if episode.done:
            break
        state, observation = episode.state, episode.observe(TOOL)
        episode.copy().apply(TOOL, text, ran)
        assert episode.observe(TOOL) == observation
        episode.apply(TOOL, text, ran)
        assert episode.state == state
        episode.apply(PLAN, "#### [R]")
    again = replay_episode(PLAN_PATH, instance(), episode.actions)
    assert again == episode
    assert again.observe(again.agent) == episode.observe(episode.agent)


@pytest.mark.parametrize(
    ("episode", "last", "action"),
    [
        (
            SOKOBAN.reset(
                SokobanInstance(
                    level=("######", "#@   #", "# $  #", "#  . #", "#    #", "######"),
                    setting=SokobanSetting(python=True),
                ).task.instance
            ),
            "#### [R, D, L, D, R]",
            {"moves": ["R", "D", "L", "D", "R"]},
        ),
        (
            SUDOKU.reset(
                SudokuInstance(
                    givens=((0, 2, 3, 4), (3, 4, 1, 2), (2, 1, 4, 3), (4, 3, 2, 1)),
                    setting=SudokuSetting(python=True),
                ).task.instance
            ),
            "#### [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]",
            {"cells": [[1, 1, 1]]},
        ),
    ],
)
def test_each_puzzle_reads_a_program_s_last_line_like_an_answer(
    episode: Episode, last: str, action: JsonObject
) -> None:
    assert isinstance(episode, ProgrammedEpisode)
    rewards, observation, _ = episode.apply(TOOL, PROGRAM, ProgramRun(last=last))
    assert observation.action == action
    assert rewards.total() == pytest.approx(2.0)


def test_a_program_s_answer_is_a_proposal_that_the_plan_agent_can_repeat() -> None:
    episode = nuts()
    proposed, _, _ = episode.apply(TOOL, PROGRAM, proposing("answer(65)"))
    assert episode.observe(PLAN).split("\n")[-2] == "It proposes [answer(65)]"
    rewards, _, done = episode.apply(PLAN, "#### [answer(65)]")
    assert done
    assert episode.verify().solved
    assert proposed.total() == rewards.total() == pytest.approx(2.0)


@pytest.mark.parametrize("proposed", ["keep(r1)", "answer(r1)", "skip()"])
def test_a_program_leaves_the_plan_agent_no_result_to_keep(proposed: str) -> None:
    episode = nuts()
    episode.apply(TOOL, PROGRAM, proposing(proposed))
    refusals = episode.apply(PLAN, "#### [keep(r1)]").observation.refusals
    assert [refusal.reason for refusal in refusals] == ["not_calculated"]


@pytest.mark.parametrize(("proposed", "right", "dense"), [("65", 1.0, 1.0), ("72", 0.0, 0.0)])
@pytest.mark.parametrize("team", [["tool_agent"], ["tool_agent", "plan_agent"]])
def test_a_program_s_answer_is_rewarded_as_an_answer(
    team: list[str], proposed: str, right: float, dense: float
) -> None:
    rewards, _, _ = nuts(team=team).apply(TOOL, PROGRAM, proposing(f"answer({proposed})"))
    assert rewards.scores()["team.solved"] == rewards.total("sparse") == right
    assert rewards.scores()["local.sound"] == right
    assert rewards.total("dense") == dense


@pytest.mark.parametrize("proposed", ["answer(65)", "answer(72)", "keep(r1)"])
def test_a_lone_tool_agent_s_program_is_judged_by_its_answer(
    proposed: str,
) -> None:
    episode = nuts(team=["tool_agent"], turns=1)
    episode.apply(TOOL, PROGRAM, proposing(proposed))
    assert episode.done
    assert episode.puzzle.solved(episode.state) == episode.verify().solved
    assert episode.verify().solved == (proposed == "answer(65)")


@pytest.mark.parametrize(
    ("output", "last"),
    [("a\nb\n", "b"), ("b\r\n\n", "b"), ("", ""), ("a\n" + "b" * (MAX_LINE + 1), "")],
)
def test_the_last_line_is_the_last_nonblank_one(output: str, last: str) -> None:
    assert last_line(output) == last

"""Reasoner and tool user: their observations, their rewards, and the end of an episode."""

from __future__ import annotations

import pytest

from loopline.agents.environments.math_team import (
    MEMBERS,
    Facts,
    MathSetting,
    Turn,
    done,
    observe,
    program_answer,
    reasoner_rewards,
    reasoning_answer,
    team_answer,
    tool_rewards,
    verdict,
)

GOLD = "116"
SETTING = MathSetting()


def turn(reasoner: str, tool_user: str) -> Turn:
    """Return a turn with these answers and the verdict of a judge that compares texts."""
    return Turn(
        solution=f"So it is {reasoner}.",
        reasoner=reasoner,
        program="print(1)",
        tool_user=tool_user,
        facts=Facts(
            reasoner_right=reasoner == GOLD,
            tool_right=tool_user == GOLD,
            agree=bool(reasoner) and reasoner == tool_user,
        ),
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [("so \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"), ("\\boxed{1} no, \\boxed{2}", "2"), ("12", ""),
     ("", ""), ("\\boxed{" + "9" * 3_000 + "}", "")],
)  # fmt: skip
def test_a_reasoner_s_answer_is_its_last_box(text: str, answer: str) -> None:
    assert reasoning_answer(text) == answer


@pytest.mark.parametrize(
    ("output", "well", "answer"),
    [("116\n", True, "116"), ("step\n 116 \n\n", True, "116"), ("\\boxed{116}", True, "116"),
     ("", True, ""), ("116\n", False, ""), ("9" * 3_000, True, "")],
)  # fmt: skip
def test_a_program_s_answer_is_its_last_line(output: str, well: bool, answer: str) -> None:
    """This requires that it finished: output before a failure is not an answer."""
    assert program_answer(output, ended_well=well) == answer


@pytest.mark.parametrize(
    ("reasoner", "tool_user", "earned"),
    [("116", "116", (2, 2)), ("116", "5", (2, 1)), ("116", "", (2, 0)), ("5", "116", (0, 1)),
     ("5", "5", (0, 0)), ("5", "", (0, -1)), ("", "116", (0, 1)), ("", "", (0, -1))],
)  # fmt: skip
def test_rewards_match_the_published_ones(
    reasoner: str, tool_user: str, earned: tuple[float, float]
) -> None:
    """2 · right; own (1, 0, -1) + the reasoner's."""
    right, tool_right = reasoner == GOLD, tool_user == GOLD
    assert (
        reasoner_rewards(reasoner, right=right).total(),
        tool_rewards(tool_user, right=tool_right, reasoner_right=right).total(),
    ) == earned


def test_progress_means_being_right_where_nothing_else_measures_it() -> None:
    assert reasoner_rewards("116", right=True).total("progress") == 1.0
    assert reasoner_rewards("5", right=False).total("progress") == 0.0


def test_an_episode_ends_when_both_agree_or_after_its_turns() -> None:
    """Two agents without an answer do not agree."""
    assert not done([], SETTING)
    assert not done([turn("1", "2")], SETTING)
    assert not done([turn("", "")], SETTING)
    assert done([turn("1", "2"), turn("7", "7")], SETTING)
    assert done([turn("1", "2")] * 4, SETTING)
    assert done([turn("1", "2")], MathSetting(turns=1))


def test_a_lone_reasoner_has_one_turn() -> None:
    assert done([turn("1", "")], MathSetting(team=("reasoner",)))
    with pytest.raises(ValueError, match="or only the reasoner"):
        MathSetting(team=("tool_user",))


def test_agreement_alone_is_not_success() -> None:
    assert verdict([turn("5", "5")]).reason == "the answer is wrong"


def test_the_team_s_answer_is_the_reasoner_s_last_one() -> None:
    """The tool user's answer counts if the reasoner has none; a missing one is wrong."""
    assert team_answer([turn("116", "116"), turn("7", "116")]) == "7"
    assert not verdict([turn("116", "116"), turn("7", "116")]).solved
    assert verdict([turn("", "116")]).solved
    assert verdict([turn("", "")]).reason == "there is no answer"
    assert not verdict([]).solved


@pytest.mark.parametrize("member", MEMBERS)
def test_the_second_turn_shows_both_answers_and_never_the_gold(member: str) -> None:
    observation = observe("reasoner" if member == "reasoner" else "tool_user", "How many?", [])
    assert "How many?" in observation
    assert "The last" not in observation
    last = turn("41", "43").model_copy(update={"trouble": "timed_out"})
    observation = observe("reasoner" if member == "reasoner" else "tool_user", "How many?", [last])
    assert all(
        part in observation for part in ("41", "43", "print(1)", "timed_out", "do not agree")
    )
    assert GOLD not in observation

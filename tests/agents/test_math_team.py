"""Reasoner and tool user: what they see, what they earn, when they are done."""

from __future__ import annotations

import pytest

from agents.answers import parse_number
from agents.environments.math_team import (
    MEMBERS,
    MathSetting,
    Turn,
    agreed,
    done,
    observe,
    program_answer,
    reasoner_rewards,
    reasoning_answer,
    solved,
    team_answer,
    tool_rewards,
)

GOLD = "116"
SETTING = MathSetting()


def equal(answer: str, reference: str) -> bool:
    """As numbers, else as text."""
    assert answer
    one, other = parse_number(answer), parse_number(reference)
    if one is None or other is None:
        return answer == reference
    return one.value == other.value


def turn(reasoner: str, tool_user: str) -> Turn:
    """A turn with these answers."""
    return Turn(
        solution=f"So it is {reasoner}.", reasoner=reasoner, program="print(1)", tool_user=tool_user
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [("so \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"), ("\\boxed{1} no, \\boxed{2}", "2"), ("12", ""),
     ("", ""), ("\\boxed{" + "9" * 3_000 + "}", "")],
)  # fmt: skip
def test_a_reasoners_answer_is_its_last_box(text: str, answer: str) -> None:
    assert reasoning_answer(text) == answer


@pytest.mark.parametrize(
    ("output", "well", "answer"),
    [("116\n", True, "116"), ("step\n 116 \n\n", True, "116"), ("\\boxed{116}", True, "116"),
     ("", True, ""), ("116\n", False, ""), ("9" * 3_000, True, "")],
)  # fmt: skip
def test_a_programs_answer_is_its_last_line(output: str, well: bool, answer: str) -> None:
    """If it came to its end: what it printed before it failed is no answer."""
    assert program_answer(output, ended_well=well) == answer


@pytest.mark.parametrize(
    ("reasoner", "tool_user", "earned"),
    [("116", "116.0", (2, 2)), ("116", "5", (2, 1)), ("116", "", (2, 0)), ("5", "116", (0, 1)),
     ("5", "5", (0, 0)), ("5", "", (0, -1)), ("", "116", (0, 1)), ("", "", (0, -1))],
)  # fmt: skip
def test_rewards_are_the_published_ones(
    reasoner: str, tool_user: str, earned: tuple[float, float]
) -> None:
    """2 · right; own (1, 0, -1) + the reasoner's."""
    taken = turn(reasoner, tool_user)
    assert (
        sum(reasoner_rewards(taken, GOLD, equal).values()),
        sum(tool_rewards(taken, GOLD, equal).values()),
    ) == earned


def test_an_episode_ends_when_both_agree_or_after_its_turns() -> None:
    """Two that have no answer do not agree."""
    assert not done([], SETTING, equal)
    assert not done([turn("1", "2")], SETTING, equal)
    assert not done([turn("", "")], SETTING, equal)
    assert done([turn("1", "2"), turn("0.5", "1/2")], SETTING, equal)
    assert done([turn("1", "2")] * 4, SETTING, equal)
    assert done([turn("1", "2")], MathSetting(turns=1), equal)


def test_to_agree_is_not_to_be_right() -> None:
    both_wrong = [turn("5", "5")]
    assert agreed(both_wrong[0], equal)
    assert not solved(both_wrong, GOLD, equal)


def test_the_teams_answer_is_the_reasoners_last_one() -> None:
    """The tool user's where the reasoner has none; a missing one is wrong."""
    assert team_answer([turn("116", "116"), turn("7", "116")]) == "7"
    assert solved([turn("", "116")], GOLD, equal)
    assert not solved([turn("", "")], GOLD, equal)
    assert not solved([], GOLD, equal)


@pytest.mark.parametrize("member", MEMBERS)
def test_the_second_turn_shows_both_answers_and_never_the_gold(member: str) -> None:
    seen = observe("reasoner" if member == "reasoner" else "tool_user", "How many?", [])
    assert "How many?" in seen
    assert "The last" not in seen
    last = turn("41", "43").model_copy(update={"trouble": "timed_out"})
    seen = observe("reasoner" if member == "reasoner" else "tool_user", "How many?", [last])
    assert all(part in seen for part in ("41", "43", "print(1)", "timed_out", "do not agree"))
    assert GOLD not in seen

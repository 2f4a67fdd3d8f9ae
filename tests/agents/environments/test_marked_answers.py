"""`#### [...]`: texts that are read and refused, and the name of each refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.environments.game import Refusal
from loopline.agents.environments.marked_answers import Call, read_calls, read_moves, read_rows


@pytest.mark.parametrize("text", ["#### [U, R, R]", "I go up.\n#### [U,R,R]\n", "####[ U , R,R ]"])
def test_moves_are_read_after_any_words(text: str) -> None:
    assert read_moves(text, 10) == ("U", "R", "R")


def test_walls_drawn_with_the_answer_mark_are_not_answers() -> None:
    level = "######\n#@ $.#\n######\n..####.."
    assert read_moves(f"The level is\n{level}\n#### [R]", 10) == ("R",)
    refusal = read_moves("######\n#@ $.#", 10)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "no_answer"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[U, R]", "no_answer"),
        ("", "no_answer"),
        ("#### [U]\n#### [R]", "several_answers"),
        ("#### [U] because it is free", "text_after_answer"),
        ("#### U, R", "not_a_list"),
        ("#### [U, R", "not_a_list"),
        ("#### []", "empty"),
        ("#### [U, north]", "unknown_move"),
        ("#### [u]", "unknown_move"),
        ("#### [U,]", "unknown_move"),
        ("#### [[U], [R]]", "unknown_move"),
        ("#### [" + "U," * 10 + "U]", "too_long"),
        ("#### [" + "U," * 10_000 + "U]", "too_long"),
    ],
)
def test_a_text_without_a_list_of_moves_is_refused_with_the_reason(text: str, reason: str) -> None:
    refusal = read_moves(text, 10)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason


@pytest.mark.parametrize("text", ["#### [[1, 2], [3, 4]]", "#### [(1,2),(3,4)]"])
def test_rows_of_numbers_are_read_in_either_bracket(text: str) -> None:
    assert read_rows(text) == ((1, 2), (3, 4))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#### [[1, x]]", "not_an_item"),
        ("#### [[1, -2]]", "not_an_item"),
        ("#### [[1, ]]", "not_a_number"),
        ("#### [[1 2]]", "not_a_number"),
        ("#### [[1000]]", "not_a_number"),
        ("#### [[٣]]", "not_a_number"),
        ("#### [1, 2]", "not_an_item"),
        ("#### [[1, 2) ]", "not_an_item"),
        ("#### [[1, 2] [3, 4]]", "not_an_item"),
    ],
)
def test_malformed_rows_are_refused_with_the_reason(text: str, reason: str) -> None:
    refusal = read_rows(text)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason


def test_calls_are_read_with_their_arguments() -> None:
    calls = read_calls("Look first. #### [look(U), bfs( 6 ), singles()]", 3)
    assert calls == (Call("look", ("U",)), Call("bfs", ("6",)), Call("singles", ()))


def test_more_calls_than_allowed_are_refused() -> None:
    refusal = read_calls("#### [a(), b()]", 1)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "too_long"


@given(st.text("#[](),UDLR 123abf\n", max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (read_moves(text, 5), read_rows(text), read_calls(text, 5)):
        assert isinstance(read, Refusal) or read


@given(st.lists(st.sampled_from("UDLR"), min_size=1, max_size=50))
def test_written_moves_read_back(moves: list[str]) -> None:
    assert read_moves(f"#### [{', '.join(moves)}]", 50) == tuple(moves)

"""How an update deals its rows to several processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loopline.trainers.grpo.rows import Row
from loopline.trainers.grpo.sharding import deal_rows

from .test_prefix_trees import row


def rows_of_prompts(count: int, *, read: int, written: int, candidates: int = 4) -> list[Row]:
    """Candidates of that many prompts, each in turn."""
    return [
        row((prompt,) * read, (number,) * written, number)
        for number in range(candidates)
        for prompt in range(count)
    ]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=12),
    st.integers(1, 5),
    st.booleans(),
)
def test_every_row_is_dealt_to_one_process_in_order(
    drawn: list[tuple[int, int]], count: int, share_prefixes: bool
) -> None:
    rows = [row((prompt,) * 5, (1,) * written, 0) for prompt, written in drawn]
    shares = deal_rows(rows, count, share_prefixes=share_prefixes)
    assert len(shares) == count
    assert sorted(number for share in shares for number in share) == list(range(len(rows)))
    assert all(share == sorted(share) for share in shares)


def test_the_candidates_of_a_prompt_stay_together_where_their_prefix_is_shared() -> None:
    rows = rows_of_prompts(5, read=40, written=2)
    shares = deal_rows(rows, 2, share_prefixes=True)
    first_prompts, second_prompts = ({rows[number].prompt for number in share} for share in shares)
    assert not first_prompts & second_prompts
    assert sorted(map(len, shares)) == [2 * 4, 3 * 4]


def test_rows_are_dealt_one_by_one_where_no_prefix_is_shared() -> None:
    rows = rows_of_prompts(7, read=40, written=2, candidates=1)
    assert deal_rows(rows, 3, share_prefixes=False) == [[0, 3, 6], [1, 4], [2, 5]]


def test_long_answers_to_a_single_prompt_are_still_dealt_one_by_one() -> None:
    """Otherwise one process would have all rows and the other none."""
    rows = rows_of_prompts(1, read=4, written=30)
    assert deal_rows(rows, 2, share_prefixes=True) == [[0, 2], [1, 3]]


def test_the_largest_prompt_is_dealt_first_and_its_process_gets_less_afterwards() -> None:
    rows = [row((prompt,) * 30, (1, 1), 0) for prompt in range(3)] + [row((9,) * 90, (1, 1), 0)]
    assert deal_rows(rows, 2, share_prefixes=True) == [[3], [0, 1, 2]]

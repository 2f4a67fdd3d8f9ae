"""All rows of one question are in one part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.trainers.router.labelled import BadLabels
from loopline.trainers.router.training import parts


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=120), st.integers(0, 2**32 - 1),
    st.integers(1, 60), st.integers(1, 60),
)  # fmt: skip
def test_every_row_is_in_one_part_together_with_the_rest_of_its_question(
    numbers: list[int], seed: int, first: int, more: int
) -> None:
    questions = np.array(numbers, dtype=np.int64)
    sizes = [min(first, len(numbers)), min(first + more, len(numbers))]
    generator = np.random.Generator(np.random.PCG64(seed))
    if len(set(numbers)) <= 2 and len(set(numbers)) < len(numbers):
        with pytest.raises(BadLabels, match="too few for 3 parts"):
            parts(questions, sizes, generator)
        return
    split = parts(questions, sizes, generator)
    assert sorted(np.concatenate(split)) == [*range(len(numbers))]
    together = [set(questions[part]) for part in split]
    assert sum(map(len, together)) == len(set(numbers))
    if len(set(numbers)) < len(numbers):
        assert all(together), "none is empty"


def test_the_parts_are_as_close_to_their_sizes_as_the_questions_allow() -> None:
    questions = np.array([*range(90), *range(10)], dtype=np.int64)
    for seed in range(20):
        generator = np.random.Generator(np.random.PCG64(seed))
        train, calibration, test = parts(questions, [40, 70], generator)
        assert abs(len(train) - 40) <= 1
        assert abs(len(calibration) - 30) <= 2
        assert len(test) > 25


def test_the_order_of_questions_is_random() -> None:
    questions = np.array([0, 0, 1, 2, 3], dtype=np.int64)
    firsts = {
        int(questions[parts(questions, [2], np.random.Generator(np.random.PCG64(seed)))[0][0]])
        for seed in range(60)
    }
    assert firsts == {0, 1, 2, 3}

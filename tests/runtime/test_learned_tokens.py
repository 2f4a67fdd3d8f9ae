"""The record of learned tokens is read back as it was written, and a damaged one is reported."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline.runtime.errors import InputError
from loopline.runtime.observe.learned_tokens import (
    LEARNED_TOKENS,
    LearnedSequence,
    read_learned,
    write_learned,
)

SINGLE = st.floats(-50, 0, width=32)


def a_sequence(run_id: str = "run", step: int = 1, **changes: Any) -> LearnedSequence:
    fields: dict[str, object] = {
        "run_id": run_id,
        "sample": f"{run_id}/0.0/solo#0",
        "step": step,
        "policy": "shared",
        "version": 3,
        "sampled_version": 2,
        "advantage": -0.5,
        "ids": (1, 2, 3),
        "learned": (False, True, True),
        "behaviour": (-1.0, -2.0),
        "proximal": (-1.0, -2.5),
        "trained": (-1.0, -3.0),
        "weights": (1.0, 0.5),
        "clipped": (False, True),
    }
    return LearnedSequence.model_validate({**fields, **changes})


@given(st.lists(st.tuples(SINGLE, SINGLE, st.booleans()), max_size=30))
def test_a_sequence_is_read_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[tuple[float, float, bool]]
) -> None:
    training = tmp_path_factory.mktemp("training")
    sequence = a_sequence(
        ids=tuple(range(len(tokens) + 1)),
        learned=(False, *[True] * len(tokens)),
        behaviour=[token[0] for token in tokens],
        proximal=[token[1] for token in tokens],
        trained=[token[1] for token in tokens],
        weights=[token[0] for token in tokens],
        clipped=[token[2] for token in tokens],
    )
    write_learned(training / LEARNED_TOKENS / "00000001-0.parquet", [sequence])
    assert read_learned(training, "run") == (sequence,)


def test_only_records_of_the_run_are_read_in_the_order_of_steps(tmp_path: Path) -> None:
    for step in (2, 1):
        path = tmp_path / LEARNED_TOKENS / f"{step:08d}-0.parquet"
        write_learned(path, [a_sequence(step=step), a_sequence("other", step)])
    assert [record.step for record in read_learned(tmp_path, "run")] == [1, 2]
    assert read_learned(tmp_path, "nobody") == ()


def test_ratios_compare_the_trained_policy_with_the_sampler() -> None:
    assert a_sequence().ratios == (1.0, math.exp(-1.0))
    far = a_sequence(trained=(0.0, 0.0), behaviour=(-1e9, -1.0))
    assert math.isfinite(far.ratios[0])


def test_the_error_for_a_missing_record_names_the_option_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--keep-ratios"):
        read_learned(tmp_path, "run")


def test_a_damaged_record_is_reported_by_name(tmp_path: Path) -> None:
    path = tmp_path / LEARNED_TOKENS / "00000001-0.parquet"
    write_learned(path, [a_sequence()])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"00000001-0\.parquet can't be read"):
        read_learned(tmp_path, "run")


@pytest.mark.parametrize(
    "changes", [{"weights": (1.0,)}, {"learned": (False, True)}, {"clipped": ()}]
)
def test_lists_of_different_lengths_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="differ in length"):
        a_sequence(**changes)

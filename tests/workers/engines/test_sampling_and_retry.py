"""The laws of sampling, and of the wait before the next attempt."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from email.utils import format_datetime

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from loopline.workers.engines.local.sampling import (
    RowSampling,
    Sampled,
    choose_tokens,
    forbid,
    sample_given_token,
    sampling_logprobs,
)
from loopline.workers.engines.openai.retry import RetryPolicy, retry_after_seconds

rows = st.builds(
    RowSampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    top_k=st.sampled_from([0, 1, 5, 1000]),
    seed=st.integers(0, 2**62),
    index=st.integers(0, 3),
    frequency_penalty=st.sampled_from([0.0, 0.7, -2.0]),
    presence_penalty=st.sampled_from([0.0, 1.3, -0.5]),
)


def logits_of(seed: int, count: int) -> torch.Tensor:
    return torch.randn(count, 50, generator=torch.Generator().manual_seed(seed)) * 3


def drawn_before(seed: int, length: int) -> list[int]:
    """Return an output of this many tokens."""
    return random.Random(seed).choices(range(50), k=length)


def chosen(
    logits: torch.Tensor,
    allowed: list[bytes | None],
    batch: list[RowSampling],
    outputs: Sequence[Sequence[int]],
) -> list[Sampled]:
    """Choose tokens like `choose_tokens`, from finite logits."""
    choices = choose_tokens(logits, allowed, batch, outputs)
    finite = [choice for choice in choices if choice is not None]
    assert len(finite) == len(batch)
    return finite


@given(st.lists(rows, min_size=1, max_size=5), st.integers(0, 1000), st.integers(0, 99))
def test_a_row_does_not_depend_on_its_neighbours(
    batch: list[RowSampling], seed: int, position: int
) -> None:
    logits = logits_of(seed, len(batch))
    output = drawn_before(seed, position)
    together = chosen(logits, [None] * len(batch), batch, [output] * len(batch))
    for i, row in enumerate(batch):
        (alone,) = chosen(logits[i : i + 1], [None], [row], [output])
        assert alone == pytest.approx(together[i], abs=1e-5)
        assert sample_given_token(
            logits[i : i + 1], None, row, alone.token, output
        ) == pytest.approx(alone, abs=1e-5)


@given(rows.filter(lambda row: row.temperature > 0), st.integers(0, 1000))
def test_the_support_is_a_distribution_over_the_likeliest_tokens(
    row: RowSampling, seed: int
) -> None:
    logits = logits_of(seed, 1)
    logprobs = sampling_logprobs(logits, [row])[0]
    support = torch.isfinite(logprobs)
    assert float(logprobs[support].exp().sum()) == pytest.approx(1.0, abs=1e-5)
    if not bool(support.all()):
        assert logits[0][support].min() >= logits[0][~support].max()
    if row.top_k:
        assert int(support.sum()) <= row.top_k


@given(st.lists(rows, min_size=1, max_size=5), st.integers(0, 1000), st.integers(0, 99))
def test_numpy_and_torch_choose_alike(batch: list[RowSampling], seed: int, position: int) -> None:
    logits = logits_of(seed, len(batch))
    outputs = [drawn_before(seed, position)] * len(batch)
    allowed = [None] * len(batch)
    choices = choose_tokens(logits.numpy(), allowed, batch, outputs)
    for choice, torch_choice in zip(
        choices, choose_tokens(logits, allowed, batch, outputs), strict=True
    ):
        assert choice == pytest.approx(torch_choice, abs=1e-5)


@given(st.integers(0, 1000), st.sets(st.integers(0, 49), min_size=1))
def test_numpy_and_torch_forbid_alike(seed: int, allowed: set[int]) -> None:
    logits = logits_of(seed, 3)
    bits = bytearray(8)
    for token in allowed:
        bits[token // 8] |= 1 << token % 8
    masked = forbid(logits, [None, bytes(bits), None])
    assert torch.isfinite(masked[1]).nonzero()[:, 0].tolist() == sorted(allowed)
    assert np.array_equal(forbid(logits.numpy(), [None, bytes(bits), None]), masked.numpy())


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    draws = 20_000
    sampled = RowSampling(temperature=0.7, top_p=1.0, top_k=0, seed=1, index=0)
    choices = chosen(
        logits.expand(draws, -1), [None] * draws, [sampled] * draws, list(map(range, range(draws)))
    )
    expected = (logits[0] / 0.7).softmax(0)
    for token, count in Counter(choice.token for choice in choices).items():
        probability = float(expected[token])
        spread = math.sqrt(probability * (1 - probability) / draws)
        assert abs(count / draws - probability) < 5 * spread
    first = choices[0]
    assert first.logprob == pytest.approx(float(expected[first.token].log()), abs=1e-5)
    assert first.raw_logprob == pytest.approx(
        float(logits.log_softmax(-1)[0, first.token]), abs=1e-5
    )


def test_a_greedy_row_reports_the_softmax_of_the_raw_logits() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    greedy = RowSampling(temperature=0.0, top_p=0.5, top_k=1, seed=0, index=0)
    (choice,) = chosen(logits, [None], [greedy], [[]])
    logprob = float(logits.log_softmax(-1)[0, 1])
    assert choice == (1, pytest.approx(logprob), pytest.approx(logprob))


@given(rows, st.integers(0, 1000), st.integers(0, 99))
def test_penalties_lower_the_logits_of_earlier_tokens_by_their_count(
    row: RowSampling, seed: int, length: int
) -> None:
    """OpenAI's formula, written out: logit - count * frequency - (count > 0) * presence."""
    logits, output = logits_of(seed, 1), drawn_before(seed, length)
    lowered = logits.clone()
    for token, count in Counter(output).items():
        lowered[0, token] -= count * row.frequency_penalty + row.presence_penalty
    plain = replace(row, frequency_penalty=0.0, presence_penalty=0.0)
    (expected,) = chosen(lowered, [None], [plain], [output])
    (choice,) = chosen(logits, [None], [row], [output])
    assert choice[:2] == pytest.approx(expected[:2], abs=1e-4)
    raw = float(logits.log_softmax(-1)[0, choice.token])
    assert choice.raw_logprob == pytest.approx(raw, abs=1e-4)


def test_penalties_leave_the_caller_s_logits_unchanged() -> None:
    logits = logits_of(0, 2)
    before = logits.clone()
    penalizing = RowSampling(1.0, 1.0, 0, 0, 0, frequency_penalty=2.0)
    chosen(logits, [None] * 2, [penalizing] * 2, [[1, 2], []])
    assert torch.equal(logits, before)


def test_the_raw_logprob_under_a_grammar_is_still_the_model_s_own() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    for temperature in (0.0, 1.0):
        row = RowSampling(temperature, top_p=1.0, top_k=0, seed=0, index=0)
        (choice,) = choose_tokens(logits, [bytes([0b001])], [row], [[]])
        logprob = float(logits.log_softmax(-1)[0, 0])
        assert choice == (0, pytest.approx(0.0), pytest.approx(logprob))


def test_tokens_as_likely_as_the_last_kept_one_are_also_kept() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0, 0.0]])
    for row in (RowSampling(1.0, 1.0, 2, seed=0, index=0), RowSampling(1.0, 0.7, 0, 0, 0)):
        assert torch.isfinite(sampling_logprobs(logits, [row]))[0].tolist() == [True] * 3 + [False]


@example([RowSampling(0.3, 1.0, 1, 0, 0), RowSampling(1.0, 1.0, 0, 0, 0)], 0, math.nan, False)
@given(
    st.lists(rows, min_size=2, max_size=5),
    st.integers(0, 1000),
    st.sampled_from([math.nan, math.inf]),
    st.booleans(),
)
def test_a_row_of_nan_logits_gets_no_token_and_the_others_get_theirs(
    batch: list[RowSampling], seed: int, bad: float, all_of_it: bool
) -> None:
    logits = logits_of(seed, len(batch))
    allowed, outputs = [None] * len(batch), [[1, 1, 2]] * len(batch)
    expected = choose_tokens(logits, allowed, batch, outputs)
    logits[1, slice(None) if all_of_it else 7] = bad
    choices = choose_tokens(logits, allowed, batch, outputs)
    assert choices == [None if place == 1 else choice for place, choice in enumerate(expected)]


@given(rows, st.integers(0, 1000))
def test_no_token_can_have_come_from_nan_logits(row: RowSampling, seed: int) -> None:
    logits = logits_of(seed, 1)
    logits[0, 7] = math.nan
    assert sample_given_token(logits, None, row, int(logits.nan_to_num(-99).argmax()), []) is None


@given(st.integers(1, 30), st.floats(0, 100) | st.none(), st.integers())
def test_a_wait_lies_within_its_window_and_never_ends_before_retry_after(
    failures: int, retry_after: float | None, seed: int
) -> None:
    policy = RetryPolicy(attempts=10, base_seconds=0.5, cap_seconds=8.0)
    wait = policy.wait_seconds(failures, retry_after, random.Random(seed))
    if failures >= 10:
        assert wait is None
        return
    assert wait is not None
    if retry_after is None:
        assert 0 <= wait <= min(8.0, 0.5 * 2 ** (failures - 1))
    else:
        assert retry_after <= wait <= retry_after + 0.5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers) == seconds


def test_retry_after_may_be_a_date() -> None:
    from datetime import UTC, datetime, timedelta

    date = format_datetime(datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=90), True)
    assert retry_after_seconds({"retry-after": date}) == pytest.approx(90, abs=5)

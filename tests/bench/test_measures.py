"""Means of the measures other than right and wrong, if all questions had equal values."""

from __future__ import annotations

import pytest

from loopline.bench.report.measures import MEANINGS, SHARES, measured_pair, measured_results
from loopline.bench.results import Result
from loopline.bench.statistics import wilson


def results(**measures: float) -> list[Result]:
    """Twelve right results, each with these measures."""
    return [Result.model_construct(verdicts={"solved": True}, measures=measures) for _ in range(12)]


@pytest.mark.parametrize("share", [0, 1])
def test_a_share_equal_for_all_questions_has_wilson_s_interval(share: int) -> None:
    interval = measured_results(results(hallucination=float(share)), seed=7)["hallucination"]
    expected = wilson(12 * share, 12)
    assert (interval["low"], interval["high"]) == (expected.low, expected.high)


def test_a_count_equal_for_all_questions_is_not_treated_as_a_share() -> None:
    interval = measured_results(results(turns=1.0), seed=7)["turns"]
    assert (interval["low"], interval["high"]) == (1.0, 1.0)


def test_a_win_rate_of_only_ties_has_an_interval_around_one_half() -> None:
    rate = measured_pair(results(calls=2.0), results(calls=2.0), seed=7)["win_rate"]
    assert rate["low"] < rate["estimate"] == 0.5 < rate["high"]


def test_every_explained_measure_is_a_share_or_a_known_count() -> None:
    assert set(MEANINGS) - SHARES == {"calls", "turns", "moves_over_shortest"}

"""Published values, mathematical laws, and scipy as an independent reference."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from loopline.bench.statistics import (
    Interval,
    bootstrap_difference,
    detectable_difference,
    mcnemar_exact,
    mcnemar_power,
    mean_share,
    paired_table,
    pairs_needed,
    pigeonhole_bootstrap,
    quantile,
    shares_of_seeds,
    wilson,
)

COUNTS = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_mcnemar_of_28_and_11_is_the_published_value() -> None:
    """Delegate's follow-up on MATH-500."""
    assert mcnemar_exact(28, 11) == pytest.approx(0.00948, abs=5e-6)


def test_wilson_of_432_in_500_is_the_published_interval() -> None:
    """Delegate's big model on 500 questions."""
    interval = wilson(432, 500)
    assert round(interval.low, 3) == 0.831
    assert round(interval.high, 3) == 0.891
    assert interval.estimate == 0.864


@given(COUNTS)
def test_wilson_agrees_with_scipy(counts: tuple[int, int]) -> None:
    """An independent implementation."""
    successes, n = counts
    interval = wilson(successes, n)
    reference = stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert interval.low == pytest.approx(reference.low, abs=1e-12)
    assert interval.high == pytest.approx(reference.high, abs=1e-12)


@given(COUNTS)
def test_wilson_contains_the_estimate_and_is_symmetric_in_failures(counts: tuple[int, int]) -> None:
    """Failures are the successes of the opposite question."""
    successes, n = counts
    interval, mirrored = wilson(successes, n), wilson(n - successes, n)
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    assert interval.low == pytest.approx(1 - mirrored.high, abs=1e-12)


def test_wilson_of_no_items_is_the_whole_range() -> None:
    """Without items nothing is known."""
    interval = wilson(0, 0)
    assert (interval.low, interval.high) == (0.0, 1.0)
    assert math.isnan(interval.estimate)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_agrees_with_the_binomial_test(only_a: int, only_b: int) -> None:
    """At one half the exact test is the binomial test."""
    p_value = mcnemar_exact(only_a, only_b)
    if only_a + only_b == 0:
        assert p_value == 1.0
        return
    reference = stats.binomtest(only_a, only_a + only_b, 0.5).pvalue
    assert p_value == pytest.approx(reference, rel=1e-9)


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_mcnemar_is_symmetric_and_a_probability(only_a: int, only_b: int) -> None:
    """Thousands of pairs included: floats alone would overflow."""
    value = mcnemar_exact(only_a, only_b)
    assert value == mcnemar_exact(only_b, only_a)
    assert 0 <= value <= 1


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_the_paired_table_counts_every_item_once(pairs: list[tuple[bool, bool]]) -> None:
    """Its margins are the arms' own counts."""
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    table = paired_table(a, b)
    assert table.n == len(pairs)
    assert table.both + table.only_a == sum(a)
    assert table.both + table.only_b == sum(b)


def test_a_comparison_of_different_items_is_refused() -> None:
    """Unpaired lists would give meaningless numbers."""
    with pytest.raises(ValueError, match="the same items"):
        paired_table([True], [True, False])
    with pytest.raises(ValueError, match="the same items"):
        bootstrap_difference([1.0], [1.0, 0.0])


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=80), st.integers(0, 9)
)
def test_the_bootstrap_contains_the_estimate_and_is_reproducible(
    pairs: list[tuple[bool, bool]], seed: int
) -> None:
    """Deterministic for a seed; swapping the arms mirrors the interval."""
    a, b = [float(x) for x, _ in pairs], [float(y) for _, y in pairs]
    interval = bootstrap_difference(a, b, seed=seed, resamples=2000)
    assert interval == bootstrap_difference(a, b, seed=seed, resamples=2000)
    assert interval.low <= interval.estimate + 1e-12
    assert interval.estimate <= interval.high + 1e-12
    mirrored = bootstrap_difference(b, a, seed=seed, resamples=2000)
    assert mirrored.estimate == pytest.approx(-interval.estimate)


def test_the_bootstrap_agrees_with_scipy_s() -> None:
    """Within the noise of 20,000 resamples, on right answers and on costs."""
    a = [1.0] * 70 + [0.0] * 30 + [1.0] * 50 + [0.0] * 50
    b = [1.0] * 60 + [0.0] * 60 + [1.0] * 40 + [0.0] * 40
    costs = [float(at % 37) * 1.5 + x for at, x in enumerate(a)]
    for left_costs, right in ((a, b), (costs, b)):
        interval = bootstrap_difference(left_costs, right, resamples=20_000, seed=1)
        differences = [x - y for x, y in zip(left_costs, right, strict=True)]
        import numpy as np

        reference = stats.bootstrap(
            (np.array(differences),), np.mean, method="percentile", n_resamples=20_000, rng=2
        ).confidence_interval
        width = reference.high - reference.low
        assert abs(interval.low - reference.low) < 0.06 * width
        assert abs(interval.high - reference.high) < 0.06 * width


@given(st.integers(1, 2000), st.sampled_from((0, 1)))
def test_shares_that_are_all_0_or_all_1_have_wilson_s_interval(n: int, share: int) -> None:
    assert mean_share([float(share)] * n) == wilson(share * n, n)


def test_equal_shares_get_an_interval_from_wilson_s_bound_on_different_items() -> None:
    interval, unlike = mean_share([0.25] * 12), wilson(0, 12).high
    assert interval.estimate == 0.25
    assert interval.low == pytest.approx(0.25 * (1 - unlike))
    assert interval.high == pytest.approx(0.25 * (1 - unlike) + unlike)


def test_different_shares_have_the_interval_of_the_bootstrap() -> None:
    shares = [0.0, 1 / 3, 1.0, 1.0]
    assert mean_share(shares, seed=3) == bootstrap_difference(shares, [0.0] * 4, seed=3)


def test_equal_values_that_are_not_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1; got 2"):
        mean_share([2.0, 2.0])


def test_shares_over_seeds_are_computed_per_item() -> None:
    assert shares_of_seeds(["1100", "1000"]) == [1.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize("of_seed", [0.3, 0.05])
def test_the_interval_over_seeds_and_items_has_its_stated_coverage(
    seeds: int, of_seed: float
) -> None:
    """With large or small differences between seeds, between items, and both. An interval over
    items only has far lower coverage."""
    import numpy as np

    rng, tables, items, hits, held_by_items = np.random.default_rng(11), 200, 60, 0, 0
    for _ in range(tables):
        table = (
            rng.normal(0, of_seed, (seeds, 1))
            + rng.normal(0, 0.2, (1, items))
            + rng.normal(0, 0.3, (seeds, items))
        )
        interval = pigeonhole_bootstrap(table.tolist(), resamples=800)
        hits += interval.low <= 0 <= interval.high
        by_items = bootstrap_difference(table.mean(0).tolist(), [0.0] * items, resamples=800)
        held_by_items += by_items.low <= 0 <= by_items.high
    # Three standard errors of 200 draws below 95 %.
    assert hits >= 0.904 * tables
    assert held_by_items < 0.87 * tables


def test_the_interval_of_paired_arms_ignores_effects_shared_by_both() -> None:
    import numpy as np

    rng = np.random.default_rng(3)
    shared = rng.normal(0, 5, (8, 1)) + rng.normal(0, 5, (1, 50))
    first, second = shared + 1 + rng.normal(0, 0.1, (8, 50)), shared
    interval = pigeonhole_bootstrap((first - second).tolist())
    assert 0.9 < interval.low < interval.estimate < interval.high < 1.1
    assert interval == pigeonhole_bootstrap((first - second).tolist())


def test_with_one_seed_only_items_are_resampled() -> None:
    row = [1.0] * 30 + [0.0] * 10
    interval, over_items = pigeonhole_bootstrap([row]), bootstrap_difference(row, [0.0] * 40)
    assert interval.estimate == over_items.estimate == 0.75
    assert (interval.low, interval.high) == pytest.approx(
        (over_items.low, over_items.high), abs=0.03
    )


def test_seeds_with_one_item_each_have_student_s_interval() -> None:
    """Without a spread over items it is the interval of a mean of few values."""
    values = [0.1, 0.4, 0.35, 0.8, 0.6, 0.55, 0.2, 0.7]
    interval = pigeonhole_bootstrap([[value] * 20 for value in values], resamples=50_000)
    low, high = stats.t.interval(0.95, 7, loc=sum(values) / 8, scale=stats.sem(values))
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=0.05)


def test_tables_without_spread_or_values_have_an_interval_and_ragged_ones_are_refused() -> None:
    assert pigeonhole_bootstrap([[0.5, 0.5], [0.5, 0.5]]) == Interval(0.5, 0.5, 0.5)
    assert math.isnan(pigeonhole_bootstrap([]).estimate)
    assert math.isnan(pigeonhole_bootstrap([[], []]).low)
    with pytest.raises(ValueError, match="the seeds have different numbers of items: 2, 1"):
        pigeonhole_bootstrap([[1.0, 0.0], [1.0]])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.floats(0.02, 0.4), st.floats(0.02, 0.4))
def test_power_is_the_sum_over_every_outcome(n: int, only_a: float, only_b: float) -> None:
    """Compared with the definition: each multinomial outcome that the test rejects."""
    expected = 0.0
    for a in range(n + 1):
        for b in range(n + 1 - a):
            if mcnemar_exact(a, b) <= 0.05:
                expected += float(
                    stats.multinomial.pmf(
                        [a, b, n - a - b], n=n, p=[only_a, only_b, 1 - only_a - only_b]
                    )
                )
    assert mcnemar_power(n, only_a, only_b) == pytest.approx(expected, abs=1e-9)


def test_without_a_difference_the_test_rejects_at_most_at_its_level() -> None:
    """The exact test is conservative."""
    for n in (20, 100, 500, 1319):
        assert mcnemar_power(n, 0.05, 0.05) <= 0.05


@pytest.mark.parametrize(("only_a", "only_b"), [(0.05, 0.03), (0.10, 0.05), (0.2, 0.1)])
def test_the_sample_size_is_the_smallest_with_that_power(only_a: float, only_b: float) -> None:
    """The returned size suffices; one pair fewer does not."""
    needed = pairs_needed(only_a, only_b)
    assert needed is not None
    assert mcnemar_power(needed, only_a, only_b) >= 0.8
    assert mcnemar_power(needed - 1, only_a, only_b) < 0.8


def test_no_difference_needs_no_finite_sample() -> None:
    """Nor does a difference too small to matter."""
    assert pairs_needed(0.05, 0.05) is None
    assert pairs_needed(0.0501, 0.05) is None


def test_the_power_of_many_pairs_follows_the_normal_approximation() -> None:
    """Connor's (Biometrics 1987), which then is within a point of the exact one."""
    n, only_a, only_b = 30_000, 0.0525, 0.0475
    difference, discordant = only_a - only_b, only_a + only_b
    distance = difference * n**0.5 - stats.norm.ppf(0.975) * discordant**0.5
    expected = stats.norm.cdf(distance / (discordant - difference**2) ** 0.5)
    assert mcnemar_power(n, only_a, only_b) == pytest.approx(expected, abs=0.01)


def test_the_detectable_difference_inverts_the_power() -> None:
    """The two searches are each other's inverse."""
    smallest = detectable_difference(500, 0.1)
    assert smallest is not None
    assert mcnemar_power(500, 0.05 + smallest / 2, 0.05 - smallest / 2) == pytest.approx(
        0.8, abs=0.01
    )
    assert detectable_difference(3, 0.1) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_agree_with_numpy(values: list[float], share: float) -> None:
    """Linear interpolation."""
    import numpy as np

    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), abs=1e-6)

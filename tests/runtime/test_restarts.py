"""When a dead worker is restarted: properties of the backoff and of the breaker."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from loopline.runtime.config.sections import SupervisorSettings
from loopline.runtime.supervise.worker_slot import RestartPolicy


def policy(**changes: float) -> RestartPolicy:
    settings = SupervisorSettings.model_validate(
        {"backoff_seconds": 0.5, "backoff_max_seconds": 8.0, **changes}
    )
    return RestartPolicy(settings, random.Random(1))


def test_the_pause_doubles_with_each_death_up_to_the_limit() -> None:
    restarts = policy(crash_loop_deaths=10, crash_loop_seconds=1000)
    pauses = [restarts.died(float(second)) for second in range(8)]
    for death, pause in enumerate(pauses):
        full = min(8.0, 0.5 * 2**death)
        assert pause is not None
        assert full / 2 <= pause <= full


def test_a_worker_that_dies_too_often_within_the_window_is_given_up() -> None:
    restarts = policy(crash_loop_deaths=3, crash_loop_seconds=60)
    assert restarts.died(0.0) is not None
    assert restarts.died(1.0) is not None
    assert restarts.died(2.0) is None


def test_deaths_further_apart_than_the_window_reset_the_pause() -> None:
    restarts = policy(crash_loop_deaths=2, crash_loop_seconds=10)
    for death in range(20):
        pause = restarts.died(death * 11.0)
        assert pause is not None
        assert pause <= 0.5


@given(
    st.lists(st.floats(0, 30), min_size=1, max_size=40),
    st.integers(1, 6),
    st.floats(1, 100),
)
def test_a_worker_is_given_up_exactly_when_its_deaths_in_the_window_reach_the_limit(
    gaps: list[float], limit: int, window: float
) -> None:
    restarts = policy(crash_loop_deaths=limit, crash_loop_seconds=window)
    now, deaths = 0.0, []
    for gap in gaps:
        now += gap
        deaths.append(now)
        within = sum(now - death <= window for death in deaths)
        assert (restarts.died(now) is None) == (within >= limit)
        if within >= limit:
            return

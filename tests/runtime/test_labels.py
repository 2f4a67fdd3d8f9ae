"""Labels of the axes of drawings."""

from __future__ import annotations

from itertools import pairwise

import pytest

from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.labels import TICK_SIZE, spaced_ticks, tick_middle

EDGE = 400.0


@pytest.mark.parametrize("left", range(40, 140, 3))
def test_labels_touch_neither_each_other_nor_the_edge(left: int) -> None:
    x = svg.Scale(0.0, 365.0, float(left), EDGE - 8)
    days = [f"{at:03}" for at in range(365)]
    placed = spaced_ticks(x, [at + 0.5 for at in range(365)], days, EDGE)
    half = svg.width_of("000", TICK_SIZE) / 2
    middles = [tick_middle(x, tick, words, EDGE) for tick, words in placed]
    assert len(middles) > 5
    assert all(after - before >= 2 * half for before, after in pairwise(middles))
    assert middles[-1] + half <= EDGE

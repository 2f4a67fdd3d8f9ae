"""Full names are next to their marks, and inside the drawing."""

from __future__ import annotations

import asyncio
import re
from copy import deepcopy
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopline.bench.checkers import Scorer
from loopline.bench.output import StoredRuns
from loopline.bench.registry import find
from loopline.bench.report.computation import compute
from loopline.bench.report.facts import Facts
from loopline.bench.report.figures import points
from loopline.bench.report.intervals import WIDTH, Line, differences_plot, shares_plot
from loopline.bench.report.latency import stacked_latency, waterfall
from loopline.bench.report.plots import accuracy_against_cost, differences
from loopline.bench.report.sections import headline, what_was_asked
from loopline.bench.statistics import Interval
from loopline.runtime.terminal.pages.labels import Box, Labels
from loopline.runtime.terminal.pages.svg import margin_for, name, width_of
from tests.bench.benchmarks import created, items, manifest, run
from tests.bench.local_client import LocalClient

TEAMS = ("puzzles", "code", "math")
LONGEST = max((arm for name in TEAMS for arm in find(name).arms.listed), key=len)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A benchmark whose big model has the longest possible arm name."""
    directory = created(tmp_path_factory.mktemp("named"), manifest(items(3), arms=("llm", "slm")))

    async def whole() -> None:
        with Scorer() as scorer:
            await run(directory, LocalClient(), scorer)

    asyncio.run(whole())
    stored = directory.stored()
    called = {"llm": LONGEST, "slm": "slm"}
    renamed = StoredRuns(
        results={
            (called[arm], item): result.model_copy(update={"arm": called[arm]})
            for (arm, item), result in stored.results.items()
        },
        runs={run_id: (called[arm], item) for run_id, (arm, item) in stored.runs.items()},
    )
    return compute(manifest(items(3), arms=(LONGEST, "slm")), renamed, [])


def reach(drawing: str, words: str) -> tuple[float, float]:
    """The pixels at which the text starts and ends."""
    for x, anchor, label in re.findall(
        r'<text x="(-?[\d.]+)"[^>]*text-anchor="(\w+)">([^<]*)<', drawing
    ):
        if unescape(label) == words:
            wide = width_of(words)
            begin = float(x) - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
            return begin, begin + wide
    raise AssertionError(f"{words!r} is not there")


def test_an_arm_s_full_name_is_next_to_its_bar(facts: Facts) -> None:
    begin, end = reach(stacked_latency(facts), LONGEST)
    assert 0 <= begin < end < WIDTH / 2


def test_an_arm_s_full_name_is_next_to_its_dot(facts: Facts) -> None:
    arms = deepcopy(facts.results["arms"])
    for arm, tokens in ((LONGEST, 85.0), ("slm", 100.0)):
        arms[arm]["per_question"]["tokens"] = dict.fromkeys(("low", "estimate", "high"), tokens)
    drawing, _ = accuracy_against_cost(replace(facts, results={**facts.results, "arms": arms}))
    for arm in (LONGEST, "slm"):
        begin, end = reach(drawing, arm)
        assert 0 <= begin < end <= WIDTH


def a_transcript(agent: str) -> dict[str, object]:
    step = {"agent": agent, "turn": 12, "branch": 1, "start": 0, "end": 1, "waited": 0, "calls": []}
    return {"wall": 1, "steps": [step]}


def test_an_agent_s_full_name_is_next_to_its_step() -> None:
    begin, _ = reach(waterfall(a_transcript("umi_summarizer")), "umi_summarizer 12.1")
    assert begin >= 0


def test_a_name_too_wide_for_the_drawing_is_truncated_with_the_full_name_as_a_tooltip() -> None:
    drawing = waterfall(a_transcript("agent" * 20))
    assert f"<title>{'agent' * 20} 12.1</title>" in drawing
    assert "…<" in drawing


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=80))
def test_no_name_starts_outside_its_drawing(words: str) -> None:
    margin = margin_for([words], 60.0, 230.0)
    (text,) = re.findall(r'text-anchor="end">([^<]*)<', name(margin, 0.0, words, "name"))
    assert width_of(unescape(text)) <= margin - 8


SIZES = {"name": 13.0, "label": 12.0, "tick": 11.0, "axis": 11.5}
"""Pixels of a class of text, as `page.css` has them."""


def boxes(drawing: str) -> list[tuple[str, Box]]:
    """Every text of a drawing with its place."""
    return [
        (unescape(words), Box.of_text(float(x), float(y), unescape(words), anchor, SIZES[class_]))
        for x, y, class_, anchor, words in re.findall(
            r'<text x="(-?[\d.]+)" y="(-?[\d.]+)" class="(\w+)" text-anchor="(\w+)">([^<]*)<',
            drawing,
        )
    ]


def overlapping(drawing: str) -> list[tuple[str, str]]:
    placed_boxes = boxes(drawing)
    return [
        (words, other)
        for at, (words, box) in enumerate(placed_boxes)
        for other, other_box in placed_boxes[at + 1 :]
        if box.overlaps(other_box)
    ]


SHARE = st.floats(0, 1)
SPOTS = st.lists(st.tuples(SHARE, SHARE), min_size=2, max_size=2)


@given(SPOTS, st.one_of(st.none(), st.tuples(SHARE, SHARE)))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.differing_executors])
def test_no_name_in_the_scatter_plot_overlaps_another(
    facts: Facts, spots: list[tuple[float, float]], oracle: tuple[float, float] | None
) -> None:
    arms = {
        name: deepcopy(arm)
        for name, arm in zip(("llm", "slm"), facts.results["arms"].values(), strict=True)
    }
    for arm, (tokens, accuracy) in zip(arms.values(), spots, strict=True):
        arm["per_question"]["tokens"] = dict.fromkeys(("low", "estimate", "high"), 100 * tokens)
        score = arm["accuracy"][facts.primary]
        score |= dict.fromkeys(("low", "estimate", "high"), accuracy)
    results = {**facts.results, "arms": arms, "oracle": None}
    if oracle is not None:
        cost = {"tokens_per_question": 100 * oracle[0], "micro_dollars_per_question": 0.0}
        results["oracle"] = {**cost, "accuracy": oracle[1]}
    drawing, _ = accuracy_against_cost(replace(facts, results=results))
    assert overlapping(drawing) == []
    assert ("oracle" in drawing) == (oracle is not None)


@given(st.lists(st.tuples(st.floats(60, 440), st.floats(20, 280)), min_size=1, max_size=8))
def test_names_of_close_marks_do_not_overlap(marks: list[tuple[float, float]]) -> None:
    labels = Labels(Box(50, 0, 460, 290), [Box.around(x, y, 5.5) for x, y in marks])
    drawing = "".join(labels.place(x, y, "coder_alone", "name", 13.0, 5.5) for x, y in marks)
    assert overlapping(drawing) == []
    assert all(box.left >= 50 and box.right <= 460 for _, box in boxes(drawing))


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_a_name_without_room_is_left_out_and_counted(facts: Facts, spread: float) -> None:
    """Thirty arms, with equal or slightly different scores."""
    (arm, *_) = facts.results["arms"].values()
    arms = {f"arm_number_{at}": deepcopy(arm) for at in range(30)}
    for at, values in enumerate(arms.values()):
        tokens = 100 + spread * at
        values["per_question"]["tokens"] = dict.fromkeys(("low", "estimate", "high"), tokens)
    manifest_of_arms = facts.manifest.model_copy(update={"arms": tuple(arms)})
    results = {**facts.results, "arms": arms, "oracle": None}
    drawing, caption = accuracy_against_cost(
        replace(facts, manifest=manifest_of_arms, results=results)
    )
    assert overlapping(drawing) == []
    count = sum(words in arms for words, _ in boxes(drawing))
    assert count >= 8
    assert f"{30 - count} names did not fit" in caption
    assert all(f"<title>{name}: " in drawing for name in arms), "a pointer shows each"


def lines_through_words(drawing: str) -> list[str]:
    lines = re.findall(
        r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)" class="(?:grid|zero)"',
        drawing,
    )
    assert lines
    return [
        words
        for words, box in boxes(drawing)
        for x1, y1, x2, y2 in (map(float, line) for line in lines)
        if Box(x1 - 0.5, y1, x2 + 0.5, y2).overlaps(box)
    ]


LONG = Line(f"{LONGEST} − {LONGEST}_two: +12.3 [−10.2, +34.5]", Interval(0.1, -0.1, 0.3), "arm-0")
SHORT = Line("a − b: +12.3", Interval(0.1, -0.1, 0.3), "arm-1")


@pytest.mark.parametrize("lines", [[SHORT], [LONG], [SHORT, LONG, SHORT]])
@pytest.mark.parametrize("plot", [shares_plot, differences_plot])
def test_labels_above_intervals_stay_inside_without_overlaps(plot: Any, lines: list[Line]) -> None:
    drawing = plot("any", lines, points)
    assert lines_through_words(drawing) == []
    assert overlapping(drawing) == []
    assert all(box.left >= 0 and box.right <= WIDTH for _, box in boxes(drawing))


def test_no_line_crosses_the_labels_of_a_pair(facts: Facts) -> None:
    drawing = differences(facts)
    assert lines_through_words(drawing) == []
    assert all(box.right <= WIDTH for _, box in boxes(drawing))
    assert overlapping(drawing) == []


def test_one_question_is_not_counted_in_the_plural(facts: Facts) -> None:
    only = facts.manifest.model_copy(
        update={
            "items": facts.manifest.items[:1],
            "available": 1,
            "source": "generated from seed 7",
        }
    )
    results = deepcopy(facts.results)
    results["pairs"][0]["n"] = 1
    changed = replace(facts, manifest=only, results=results)
    words = what_was_asked(changed)
    assert words.startswith("1 of 1 question, split")
    assert words.endswith("; source: generated from seed 7")
    assert "on 1 shared question:" in headline(changed)

"""Names stand whole alongside what they name, and inside the drawing."""

from __future__ import annotations

import asyncio
import re
from copy import deepcopy
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.bench.checkers import Scorer
from loopline.bench.output import StoredRuns
from loopline.bench.registry import find
from loopline.bench.report.computation import compute
from loopline.bench.report.facts import Facts
from loopline.bench.report.latency import stacked_latency, waterfall
from loopline.bench.report.plots import WIDTH, accuracy_against_cost
from loopline.runtime.terminal.pages.svg import margin_for, name, width_of
from tests.bench.benchmarks import created, items, manifest, run
from tests.bench.local_client import LocalClient

TEAMS = ("puzzles", "code", "math")
LONGEST = max((arm for name in TEAMS for arm in find(name).arms.listed), key=len)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Of a benchmark whose big model has the longest name of an arm that there is."""
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
    """From which pixel to which that text goes."""
    for x, anchor, label in re.findall(
        r'<text x="(-?[\d.]+)"[^>]*text-anchor="(\w+)">([^<]*)<', drawing
    ):
        if unescape(label) == words:
            wide = width_of(words)
            return (float(x) - wide, float(x)) if anchor == "end" else (float(x), float(x) + wide)
    raise AssertionError(f"{words!r} is not there")


def test_an_arms_name_stands_whole_beside_its_bar(facts: Facts) -> None:
    begin, end = reach(stacked_latency(facts), LONGEST)
    assert 0 <= begin < end < WIDTH / 2


def test_an_arms_name_stands_whole_beside_its_dot(facts: Facts) -> None:
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


def test_an_agents_name_stands_whole_beside_its_step() -> None:
    begin, _ = reach(waterfall(a_transcript("umi_summarizer")), "umi_summarizer 12.1")
    assert begin >= 0


def test_a_name_that_would_take_half_of_the_drawing_is_cut_and_a_pointer_shows_it_whole() -> None:
    drawing = waterfall(a_transcript("agent" * 20))
    assert f"<title>{'agent' * 20} 12.1</title>" in drawing
    assert "…<" in drawing


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=80))
def test_no_name_begins_before_its_drawing(words: str) -> None:
    margin = margin_for([words], 60.0, 230.0)
    (text,) = re.findall(r'text-anchor="end">([^<]*)<', name(margin, 0.0, words, "name"))
    assert width_of(unescape(text)) <= margin - 8

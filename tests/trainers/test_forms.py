"""Further forms of a lesson: other names and tools, the same steps."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.environments.api_worlds import Split
from loopline.agents.records import ToolSpec
from loopline.agents.roles.umi.output import Action
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.trainers.data.datasets import build
from loopline.trainers.data.forms import with_forms
from loopline.trainers.data.sources import Source, from_worlds
from loopline.trainers.data.trajectories import Step, Trajectory

LESSONS = from_worlds(Split.UNSEEN_APIS, 60, 3).trajectories


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=name, parameters={"type": "object", "properties": {}})


def lesson(hotel: str, *, ends: bool = True) -> Trajectory:
    """A lesson about a hotel whose observation also mentions another one."""
    steps = [
        Step(
            f"I look up {hotel}.",
            "call",
            call=Action("get_hotel", {"hotel": hotel}),
            output={"result": json.dumps({"hotel": hotel, "near": "Hotel Regina", "stars": 3})},
        ),
        Step("That is it.", "conclude", answer=f"{hotel} has 3 stars."),
    ]
    if not ends:
        steps = [Step("No tool here can do that.", "give_up")]
    return Trajectory(
        source="store",
        id=f"run-{hotel}",
        instruction_id=hotel,
        instruction=f"How many stars does {hotel} have?",
        tools=(tool("get_hotel"), tool("add_task"), tool(f"find_{hotel.split()[-1].lower()}")),
        steps=tuple(steps),
    )


def test_a_name_is_replaced_everywhere_by_one_that_the_lesson_does_not_contain() -> None:
    pair = [lesson("Hotel Astoria"), lesson("Hotel Bristol"), lesson("Hotel Regina")]
    forms = [form for form in with_forms(pair, 12, seed=1) if form.id.startswith("run-Hotel Astor")]
    others = [form for form in forms if "Astoria" not in form.instruction]
    assert len(forms) == 12
    assert others
    for form in others:
        assert "Hotel Bristol" in form.instruction
        call = form.steps[0].call
        assert call is not None
        assert call.arguments == {"hotel": "Hotel Bristol"}
        match form.steps[0].output:
            case {"result": str(result)}:
                assert json.loads(result)["hotel"] == "Hotel Bristol"
            case other:
                pytest.fail(f"no result: {other}")
        assert form.steps[1].answer == "Hotel Bristol has 3 stars."
        assert "Astoria" not in repr((form.instruction, form.steps))


def test_a_name_within_a_longer_one_is_kept() -> None:
    first = lesson("Hotel Astoria")
    first = replace(first, instruction=first.instruction + " Not Hotel Astorias.")
    forms = with_forms([first, lesson("Hotel Bristol")], 12, seed=1)[:12]
    assert all("Hotel Astorias." in form.instruction for form in forms)


def test_a_lesson_that_gives_up_keeps_its_tools() -> None:
    lessons = [lesson("Hotel Astoria", ends=False), lesson("Hotel Bristol")]
    names = {tuple(sorted(t.name for t in form.tools)) for form in with_forms(lessons, 9, 1)[:9]}
    assert names == {("add_task", "find_astoria", "get_hotel")}


@settings(max_examples=15, deadline=None)
@given(forms=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_every_form_offers_the_tools_it_calls_and_keeps_the_steps(forms: int, seed: int) -> None:
    varied = with_forms(LESSONS, forms, seed)
    assert len(varied) == forms * len(LESSONS)
    assert [entry.id for entry in varied[::forms]] == [entry.id for entry in LESSONS]
    assert len({entry.id for entry in varied}) == len(varied)
    for at, form in enumerate(varied):
        first = LESSONS[at // forms]
        assert [step.next for step in form.steps] == [step.next for step in first.steps]
        assert len(form.tools) == len(first.tools) == len({entry.name for entry in form.tools})
        for step, before in zip(form.steps, first.steps, strict=True):
            assert (step.call and step.call.name) == (before.call and before.call.name)
            assert step.call is None or form.offers(step.call.name) == first.offers(step.call.name)


def test_the_forms_follow_from_the_seed_and_each_of_them_gives_rows() -> None:
    varied = with_forms(LESSONS, 4, 1)
    assert varied == with_forms(LESSONS, 4, 1)
    assert varied != with_forms(LESSONS, 4, 2)
    data = build([Source("store", {}, tuple(varied))], UmiOptions())
    ends = sum(entry.steps[-1].next == "conclude" for entry in varied)
    assert len(data.sets["summarizer"]) == pytest.approx(ends, abs=3)
    assert not data.card.sets["planner"].dropped

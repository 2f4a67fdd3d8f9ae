"""Texts of `umi`'s planner and caller, and how they are read."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loopline.agents.records import JsonObject, ToolSpec
from loopline.agents.roles.umi.output import (
    Action,
    Next,
    PlannerTurn,
    Unreadable,
    call_schema,
    format_call,
    format_plan,
    read_action,
    read_answer,
    read_plan,
)
from loopline.agents.thinking import split_thoughts

decisions: st.SearchStrategy[Next] = st.sampled_from(["call", "conclude", "give_up"])
names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20) | st.sampled_from(["</s>", "\nAction: other", "caller:", '"}'])
    , lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner,
    max_size=3), max_leaves=6,
)  # fmt: skip
arguments: st.SearchStrategy[JsonObject] = st.dictionaries(st.text(max_size=8), values, max_size=4)


@pytest.mark.parametrize(
    ("text", "rationale", "following"),
    [
        ("I look it up.\n Next: caller.", "I look it up.", "call"),
        ("I look it up. Next: caller", "I look it up.", "call"),
        ("All is known.\nNext: conclusion.", "All is known.", "conclude"),
        ("All is known.\nnext: Summarizer", "All is known.", "conclude"),
        ("All is known.\n**Next:** summariser.", "All is known.", "conclude"),
        ("No tool can.\nNext: give up.", "No tool can.", "give_up"),
        ("No tool can.\nNEXT : `give_up`", "No tool can.", "give_up"),
        ("Next: caller.", "", "call"),
        ("assistant: Ask.\nNext: caller.", "Ask.", "call"),
        ("Planner: Ask.\nNext:\ncaller.", "Ask.", "call"),
        ("Next: I ask for the weather. Next: caller.", "Next: I ask for the weather.", "call"),
        ("Ask.\nNext: caller.</s>caller: Action: a\nNext: conclusion.", "Ask.", "call"),
        ("Ask.\nNext: caller.\nThen.\nNext: conclusion.", "Ask.", "call"),
        ("Frage: Überprüfen 🙂\nNext: caller.", "Frage: Überprüfen 🙂", "call"),
    ],
)
def test_a_plan_is_read_in_every_form_that_models_write(
    text: str, rationale: str, following: Next
) -> None:
    assert read_plan(text) == PlannerTurn(rationale, following)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("I look it up.", "I look it up."),
        ("Next: the weather.", "Next: the weather."),
        ("Next: callers", "names no next role"),
        ("I call the caller next.", "names no next role"),
        ("I look it up.</s>Next: caller.", "I look it up."),
        ("x" * 5_000, "x" * 200),
    ],
)
def test_a_text_without_a_next_role_is_refused_as_a_plan_and_quoted(text: str, reason: str) -> None:
    read = read_plan(text)
    assert isinstance(read, Unreadable)
    assert reason in read.reason
    assert len(read.reason) < 400


@pytest.mark.parametrize(
    ("text", "name", "given_arguments"),
    [
        ('Action: weather\nAction Input: {"city": "Oslo"}', "weather", {"city": "Oslo"}),
        ('caller: Action: weather\nAction Input: {"city": "Oslo"}', "weather", {"city": "Oslo"}),
        ("action: weather\naction input: {}", "weather", {}),
        ("**Action:** `weather`\n**Action Input:** {}", "weather", {}),
        ('Action: "weather".\nAction Input:\n```json\n{"a": 1}\n```', "weather", {"a": 1}),
        ('Action: weather\nAction_Input: {"a": {"b": [1]}}', "weather", {"a": {"b": [1]}}),
        ("Action: weather</s>\nAction Input: {}</s>assistant: Next", "weather", {}),
        ("I call it.\nAction: weather\nAction Input: {}\nObservation: 4", "weather", {}),
        ('{"Action": "weather", "Action Input": {"a": "Action: "}}', "weather", {"a": "Action: "}),
        ('```json\n{"Action": "weather",\n "Action Input": {}}\n```', "weather", {}),
        ('Action: _x-1_\nAction Input: {"Action": 1}', "_x-1_", {"Action": 1}),
        ('Action: a\nAction Input: {"t": "</s>"}', "a", {"t": "</s>"}),
    ],
)  # fmt: skip
def test_a_call_is_read_in_either_form(text: str, name: str, given_arguments: JsonObject) -> None:
    assert read_action(text) == Action(name, given_arguments)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no line `Action:"),
        ("The weather is fine.", "no line `Action:"),
        ('{"city": "Oslo"}', "no line `Action:"),
        ("Action:\nAction Input: {}", "names no tool"),
        ("Action: weather", "no line `Action Input:"),
        ("Action: weather\nAction Input:", "must be a JSON object in braces"),
        ("Action: weather\nAction Input: Oslo", "must be a JSON object in braces"),
        ('Action: weather\nAction Input: ["Oslo"]', "must be a JSON object in braces"),
        ('Action: weather\nAction Input: {"city": "Os', "not valid JSON"),
        ("Action: weather\nAction Input: {'city': 'Oslo'}", "not valid JSON"),
        ('Action: weather\nAction Input: {"x": NaN}', "not valid JSON"),
        ('Action: weather\nAction Input: {"x": "\\ud800"}', "not valid JSON"),
        ('Action: a\nAction Input: {"x":' + "[" * 100 + "]" * 100 + "}", "levels deep"),
        ('Action: a\nAction Input: {"x":' + "[" * 100_000, "not valid JSON"),
        ('{"Action": "weather", "Action Input": {"city": "Os', "the call is not valid JSON"),
        ('{"Action": "weather", "Action In', "the call is not valid JSON"),
        ('{"Action": 3, "Action Input": {}}', "`Action` names no tool"),
        ('{"Action": "weather"}', "`Action Input` must be a JSON object"),
        ('{"Action": "weather", "Action Input": "Oslo"}', "`Action Input` must be a JSON object"),
    ],
)
def test_a_text_without_a_call_is_refused_with_its_missing_part(text: str, reason: str) -> None:
    read = read_action(text)
    assert isinstance(read, Unreadable)
    assert reason in read.reason


def test_an_answer_is_the_text_without_its_tags() -> None:
    assert read_answer("conclusion: It rains.</s>user: And now?") == "It rains."
    assert read_answer(" </s>") == ""


@given(st.text(alphabet=st.characters(exclude_characters=":<"), max_size=80), decisions)
def test_a_written_plan_reads_back(rationale: str, following: Next) -> None:
    text = format_plan(rationale, following)
    assume(not split_thoughts(text).spans)  # What is within a thought is not read.
    read = read_plan(text)
    assert isinstance(read, PlannerTurn)
    assert read.next == following
    assert read.rationale == rationale.strip().rstrip("*_`").rstrip()


@given(names, arguments, st.booleans())
def test_a_written_call_reads_back(name: str, given_arguments: JsonObject, as_json: bool) -> None:
    text = format_call(name, given_arguments, as_json=as_json)
    assume(not split_thoughts(text).spans)
    assert read_action(text) == Action(name, given_arguments)


@given(st.text(alphabet='AactionInput: {}[]"\n</s>Nextcallergiveup.`*', max_size=80) | st.text())
def test_no_text_crashes_the_readers(text: str) -> None:
    assert isinstance(read_plan(text), PlannerTurn | Unreadable)
    assert isinstance(read_action(text), Action | Unreadable)


def test_the_schema_of_a_call_binds_each_name_to_its_own_arguments() -> None:
    city: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}}
    weather = ToolSpec(name="weather", description="", parameters=city)
    nothing = ToolSpec(name="nothing", description="", parameters={"type": "object"})
    schema = call_schema([weather])
    assert schema["properties"] == {
        "Action": {"type": "string", "enum": ["weather"]}, "Action Input": city,
    }  # fmt: skip
    assert (schema["required"], schema["additionalProperties"]) == (
        ["Action", "Action Input"],
        False,
    )
    assert call_schema([weather, nothing]) == {"anyOf": [schema, call_schema([nothing])]}


@pytest.mark.parametrize("piece", ["\n", " \n", "#\n", "Action\n", "Action: x\n\n\n"])
def test_a_call_is_sought_in_a_long_text_in_linear_time(piece: str) -> None:
    started = time.process_time()
    read_action(piece * (100_000 // len(piece)))
    assert time.process_time() - started < 2

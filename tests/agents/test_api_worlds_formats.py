"""Formats of instances: tools in few tokens, and the schema of ToolBench."""

from __future__ import annotations

import json
from typing import Any

from loopline.agents.environments.api_worlds import APIS, compact_documentation, instances
from loopline.agents.environments.api_worlds.api import signature
from loopline.agents.environments.api_worlds.toolbench import answer, function_name, query


def test_a_signature_shows_types_choices_and_optional_parameters() -> None:
    assert signature(APIS["book_flight"].spec) == "book_flight(flight, seats: int)"
    assert signature(APIS["checkout"].spec) == "checkout()"
    assert (
        signature(APIS["search_flights"].spec)
        == "search_flights(origin, to, day: Monday..Sunday, page?: int)"
    )
    assert signature(APIS["travel_time"].spec) == "travel_time(origin, to, mode: car|train|bike)"


def test_every_tool_has_one_short_line() -> None:
    lines = compact_documentation(api.spec for api in APIS.values()).splitlines()
    assert len(lines) == len(APIS)
    assert max(map(len, lines)) <= 150


def test_a_toolbench_query_lists_the_apis_and_the_relevant_ones() -> None:
    for number, instance in enumerate(instances("train", 2, 30)):
        entry: Any = query(instance, number)
        assert entry["query"] == instance.instruction
        assert [api["api_name"] for api in entry["api_list"]] == list(instance.recipe.tools)
        listed = {(api["tool_name"], api["api_name"]) for api in entry["api_list"]}
        assert {tuple(pair) for pair in entry["relevant APIs"]} <= listed
        for api in entry["api_list"]:
            schema: Any = APIS[api["api_name"]].spec.parameters
            names = [parameter["name"] for parameter in api["required_parameters"]]
            assert names == schema.get("required", [])


def test_a_toolbench_answer_contains_the_oracle_s_calls_and_ends_with_finish() -> None:
    for instance in instances("train", 2, 60):
        entry: Any = answer(instance)["answer_generation"]
        names = {function["name"] for function in entry["function"]}
        chain = entry["train_messages"][-1]
        called = [message["function_call"] for message in chain if message["role"] == "assistant"]
        assert {call["name"] for call in called} <= names
        assert [json.loads(call["arguments"]) for call in called[:-1]] == [
            call.arguments for call in instance.oracle.calls
        ]
        observed = [json.loads(m["content"]) for m in chain if m["role"] == "function"]
        assert [result["response"] for result in observed] == [
            step.observation for step in instance.oracle.steps
        ]
        finish = json.loads(called[-1]["arguments"])
        assert called[-1]["name"] == "Finish"
        assert finish.get("final_answer") == instance.oracle.answer
        json.dumps(entry)


def test_function_names_fit_toolbench_s_limit() -> None:
    names = [function_name(name) for name in APIS]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 64

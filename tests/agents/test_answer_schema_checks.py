"""Answers are checked against their schema as JSON means it, not as Python's numbers do."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("jsonschema", reason="needs make install")

from loopline.agents.answer_schema import AnswerSchema
from loopline.agents.errors import InvalidOptions
from loopline.agents.records import JsonObject


def _accepts(schema: JsonObject, text: str) -> bool:
    return AnswerSchema(schema).read(text)[1] is None


@pytest.mark.parametrize(
    ("factor", "text"),
    [(0.01, "0.07"), (0.01, "19.99"), (0.1, "0.3"), (0.1, "1e308"), (0.1, "1" + "0" * 400)],
)
def test_a_multiple_of_a_decimal_fraction_is_accepted(factor: float, text: str) -> None:
    assert _accepts({"multipleOf": factor}, text)


@pytest.mark.parametrize(
    ("factor", "text"), [(0.01, "0.075"), (2, "12345678901234567890123"), (1, "1e400"), (3, "1e22")]
)
def test_a_number_that_is_no_multiple_is_refused(factor: float, text: str) -> None:
    assert not _accepts({"multipleOf": factor}, text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\p{L}+$", r"[\p{Script=Greek}]", r"^(?<year>\d{4})-\k<year>$", r"[^]", r"(?<!a)b",
        r"[\u{1F600}-\u{1F64F}\u{e9}]", r"\cJ",
        r"^[\w-.]+@([\w-]+\.)+[\w-]{2,4}$", r"[.-\d]", r"[\-\d]", r"(?<=a+)b", "[[a]",
    ],
)  # fmt: skip
def test_a_pattern_in_the_syntax_of_javascript_is_a_schema(pattern: str) -> None:
    assert _accepts({"type": "string", "pattern": pattern}, '"x"')


@pytest.mark.parametrize("pattern", ["(", "[a-", "a{2,1}", "*a", r"(?<year>a)(?<year>b)"])
def test_a_text_that_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidOptions, match="is not a JSON schema"):
        AnswerSchema({"type": "string", "pattern": pattern})


def test_half_of_a_surrogate_pair_is_an_error_of_the_answer() -> None:
    assert not _accepts({"type": "string"}, '"\ud800"')


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"enum": [1, None]}, "1.0"),
        ({"enum": [1, None]}, "null"),
        ({"enum": [{"a": 1, "b": [True]}]}, '{"b": [true], "a": 1}'),
        ({"uniqueItems": True}, '[1, true, "1", [1], {"a": 1}]'),
        ({"uniqueItems": True}, '"aa"'),
        ({"uniqueItems": False}, "[1, 1]"),
    ],
)
def test_values_are_compared_by_the_rules_of_json(schema: JsonObject, text: str) -> None:
    assert _accepts(schema, text)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"enum": [0]}, "false"),
        ({"enum": []}, "1"),
        ({"enum": [{"a": 1, "b": [True]}]}, '{"b": [1], "a": 1}'),
        ({"uniqueItems": True}, "[1, true, 1.0]"),
        ({"uniqueItems": True}, '[{"a": 1, "b": 2}, {"b": 2, "a": 1}]'),
    ],
)
def test_a_value_that_differs_by_the_rules_of_json_is_refused(
    schema: JsonObject, text: str
) -> None:
    assert not _accepts(schema, text)


@pytest.mark.parametrize(
    "schema", [{"uniqueItems": True}, {"items": {"enum": [{"a": n} for n in range(5_000)]}}]
)
def test_many_values_are_compared_at_once(schema: JsonObject) -> None:
    began = time.process_time()
    assert _accepts(schema, json.dumps([{"a": number} for number in range(5_000)]))
    assert time.process_time() - began < 5


def test_a_schema_with_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="surrogate"):
        AnswerSchema({"description": "\ud800"})


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: JsonObject = {}
    for _ in range(5_000):
        schema = {"items": schema}
    with pytest.raises(InvalidOptions, match="nested too deeply"):
        AnswerSchema(schema)

"""Whatever a server calls a schema, models and validators receive a plain, small and valid one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jsonschema", reason="needs make install")

from jsonschema import Draft202012Validator

from loopline.agents.records import JsonObject
from loopline.workers.tool_sources import ToolRefused
from loopline.workers.tool_sources.plain_schema import MAX_CHARS, plain_schema

KEYWORDS = [
    "type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "$ref", "enum", "const",
    "default", "description", "format", "minimum", "exclusiveMaximum", "minLength", "maxItems",
    "additionalProperties", "nullable", "pattern", "x",
]  # fmt: skip
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["object", "string", "array", "#", "#/properties/x", "#/x", "x"])
)  # fmt: skip
SCHEMAS = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(SCHEMAS)
def test_the_result_is_a_valid_object_schema_or_a_refusal(schema: Any) -> None:
    try:
        plain = plain_schema(schema)
    except ToolRefused:
        return
    Draft202012Validator.check_schema(plain)
    assert plain["type"] == "object"
    assert len(json.dumps(plain)) <= MAX_CHARS
    assert plain_schema(plain) == plain


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string"}, "its arguments are not an object"),
        ({"$ref": "#/nowhere"}, "a reference in its schema leads nowhere: #/nowhere"),
        ({"$ref": "file:///etc/passwd"}, "it refers to another document: file:///etc/passwd"),
        ({"properties": {"x" * 200: {}}}, "an argument's name is longer than 128 characters"),
        ({"properties": {str(n): {} for n in range(2_000)}}, "has more than 1000 parts"),
        ({"properties": {"x": {"enum": ["y" * 40_000]}}}, "more than 32768"),
        ({"properties": {"x": {"default": float("nan")}}}, "its schema is not JSON"),
    ],
)
def test_a_schema_that_cannot_be_simplified_is_refused_with_the_reason(
    schema: JsonObject, why: str
) -> None:
    with pytest.raises(ToolRefused, match=why):
        plain_schema(schema)


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({"type": "object", "title": "T", "$schema": "x"}, {}),
        (
            {"properties": {"n": {"type": "integer", "nullable": True, "format": "int64"}}},
            {"properties": {"n": {"type": ["integer", "null"], "description": "(int64)"}}},
        ),
        (
            {
                "allOf": [
                    {"type": "object", "properties": {"a": {}}, "required": ["a"]},
                    {"properties": {"b": {}}, "required": ["b", "gone"]},
                ]
            },
            {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
        ),
        (
            {"properties": {"s": {"oneOf": [{"const": 1}, {"enum": ["x"]}], "pattern": "(a+)+$"}}},
            {"properties": {"s": {"anyOf": [{"const": 1}, {"enum": ["x"]}]}}},
        ),
        (
            {"properties": {"n": {"type": "integer", "enum": ["1", 2]}}},
            {"properties": {"n": {"type": "integer", "enum": [1, 2]}}},
        ),
        (
            {"properties": {"b": {"type": "boolean", "enum": ["true", "false"]}}},
            {"properties": {"b": {"type": "boolean", "enum": [True, False]}}},
        ),
        (
            {
                "properties": {
                    "s": {"type": "string", "enum": ["a", None]},
                    "v": {"type": ["string", None]},
                }
            },
            {
                "properties": {
                    "s": {"type": ["string", "null"], "enum": ["a", None]},
                    "v": {"type": ["string", "null"]},
                }
            },
        ),
        (
            {"properties": {"v": {"type": ["string", {"type": "integer"}]}}},
            {"properties": {"v": {}}},
        ),
        (
            {"properties": {"s": {"minLength": 1, "maxLength": 10**9, "exclusiveMinimum": True}}},
            {"properties": {"s": {"minLength": 1}}},
        ),
        (
            {"properties": {"n": {"type": ["integer", "null"], "enum": ["1", None]}}},
            {"properties": {"n": {"type": ["integer", "null"], "enum": [1, None]}}},
        ),
        (
            {"properties": {"n": {"minimum": 0, "exclusiveMinimum": True}}},
            {"properties": {"n": {"minimum": 0, "exclusiveMinimum": 0}}},
        ),
    ],
)
def test_known_keywords_are_kept_and_the_rest_is_dropped(
    schema: JsonObject, plain: JsonObject
) -> None:
    assert plain_schema(schema) == {"type": "object", "properties": {}, **plain}


PARTS = [
    # A part of `allOf` requires what another one describes.
    (
        {"allOf": [{"properties": {"a": {}, "b": {}}}, {"required": ["a"]}]},
        {"properties": {"a": {}, "b": {}}, "required": ["a"]},
    ),
    ({"required": ["a"], "allOf": [{"properties": {"a": {}}}]}, {"required": ["a"]}),
    ({"$ref": "#/$defs/A", "required": ["a"], "$defs": {"A": {"properties": {"a": {}}}}},
     {"required": ["a"]}),
    # … unless only the server sets it.
    (
        {"allOf": [{"properties": {"a": {"readOnly": True}}}, {"required": ["a"]}]},
        {"properties": {"a": {}}},
    ),
    (
        {
            "$defs": {"A": {"readOnly": True}},
            "properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}]}},
            "required": ["a"],
        },
        {"properties": {"a": {}}},
    ),
    # Parts that describe the same field all apply.
    (
        {
            "allOf": [
                {"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"const": "x"}}},
            ]
        },
        {"properties": {"a": {"type": "string", "const": "x"}}},
    ),
    (
        {"properties": {"a": {"allOf": [{"enum": ["x", "y"]}, {"enum": ["y", "z"]}]}}},
        {"properties": {"a": {"enum": ["y"]}}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "plain"), PARTS)
def test_the_parts_of_a_schema_apply_together(schema: JsonObject, plain: JsonObject) -> None:
    assert plain_schema(schema) == {"type": "object", "properties": {"a": {}}, **plain}


@pytest.mark.parametrize("key", ["id", "$id"])
def test_a_name_that_older_drafts_write_as_an_identifier_is_followed(key: str) -> None:
    part: JsonObject = {key: "#P", "type": "string"}
    schema: JsonObject = {"definitions": {"P": part}, "properties": {"a": {"$ref": "#P"}}}
    assert plain_schema(schema)["properties"] == {"a": {"type": "string"}}

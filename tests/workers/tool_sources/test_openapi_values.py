"""Values and bodies that are sent as their document means them, or not offered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytest.importorskip("jsonschema", reason="needs make install")

from loopline.agents.records import JsonObject
from loopline.workers.tool_sources.credentials import Credentials
from loopline.workers.tool_sources.openapi_operations import OperationFilter, operations_of
from loopline.workers.tool_sources.openapi_request import request_of
from loopline.workers.tool_sources.plain_schema import plain_schema

FILE: JsonObject = {"type": "string", "format": "binary"}
BASE = "https://api.example"


def _request(node: JsonObject, arguments: JsonObject) -> httpx.Request:
    document: JsonObject = {"paths": {"/p": {"post": {"operationId": "act", **node}}}}
    operations = operations_of(document, BASE, OperationFilter())
    assert operations.left_out == []
    operation = operations.by_name["act"]
    return request_of(httpx.AsyncClient(), BASE, operation, arguments, Credentials({}, {}, {}))


def _form_fields(schema: JsonObject) -> JsonObject:
    media: JsonObject = {"content": {"multipart/form-data": {"schema": schema}}, "required": True}
    document: JsonObject = {"paths": {"/p": {"post": {"operationId": "act", "requestBody": media}}}}
    operations = operations_of(document, BASE, OperationFilter())
    assert operations.left_out == []
    plain: Any = plain_schema(operations.listed[0].parameters, operations.listed[0].references)
    return plain["properties"]["body"]["properties"]


@pytest.mark.parametrize(("value", "text"), [(3.0, "3"), (0.5, "0.5"), ([2.0], "2"), (-0.0, "0")])
def test_a_whole_number_is_sent_without_its_point(value: Any, text: str) -> None:
    node: JsonObject = {"parameters": [{"name": "n", "in": "query"}]}
    assert _request(node, {"n": value}).url.query.decode() == f"n={text}"


def test_a_field_that_is_null_is_not_sent_between_commas() -> None:
    node: JsonObject = {"parameters": [{"name": "o", "in": "query", "explode": False}]}
    assert _request(node, {"o": {"a": None, "b": 1}}).url.query.decode() == "o=b,1"


@pytest.mark.parametrize(
    "file",
    [
        {"anyOf": [FILE, {"type": "null"}]},
        {"oneOf": [{"type": "array", "items": FILE}, {"type": "null"}]},
        {"type": ["array", "null"], "items": FILE},
        {"allOf": [FILE]},
    ],
)
def test_a_file_that_may_be_null_is_no_text_field(file: JsonObject) -> None:
    fields = _form_fields({"type": "object", "properties": {"a": {"type": "string"}, "f": file}})
    assert fields == {"a": {"type": "string"}}


def test_a_form_has_the_fields_of_all_its_parts() -> None:
    first: JsonObject = {"properties": {"a": {"type": "string"}, "f": FILE}}
    second: JsonObject = {"properties": {"b": {"type": "integer"}}}
    assert _form_fields({"allOf": [first, second]}) == {
        "a": {"type": "string"},
        "b": {"type": "integer"},
    }


def test_lines_of_json_are_sent_as_text() -> None:
    content: JsonObject = {"application/jsonl": {"schema": {"type": "string"}}}
    request = _request({"requestBody": {"content": content}}, {"body": "{}\n{}"})
    assert request.content == b"{}\n{}"


def test_a_secret_is_masked_in_an_echo_without_its_scheme() -> None:
    credentials = Credentials({"Authorization": "Token abcdef123"}, {}, {})
    assert credentials.hidden("'Token abcdef123' abcdef123") == "'Token ***' ***"

"""Documents as generators of well-known APIs write them, and the requests of their calls."""

from __future__ import annotations

import json
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="needs make install")

from loopline.workers.tool_sources import openapi_document
from loopline.workers.tool_sources.openapi_child import Question, answer_question
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import joined, source
from tests.workers.tool_sources.recording_api import RecordedRequest, RecordingApi

TEXT: dict[str, Any] = {"type": "string"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
OBJECT: dict[str, Any] = {"type": "object"}
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


async def _here(_module: str, payload: bytes, *, max_answer_bytes: int) -> bytes:
    question, _, raw = payload.partition(b"\n")
    answer = answer_question(Question.model_validate_json(question), raw)
    assert len(answer) <= max_answer_bytes
    return answer


async def sent(
    folder: Path, path: str, node: dict[str, Any], arguments: dict[str, Any], **more: Any
) -> RecordedRequest:
    """Return the request of a call to a document's only operation, a POST."""
    method = more.pop("method", "post")
    paths = {path: {method: {"operationId": "act", **node}}}
    file = folder / "api.json"
    document = {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": paths, **more}
    file.write_text(json.dumps(document))
    api = RecordingApi()
    async with (
        listening(api.app()) as url,
        joined(s=source(openapi=str(file), base_url=url)) as sources,
    ):
        answer = await sources.call("s__act", arguments)
        assert "error" not in answer, (answer, sources.state())
    return api.requests[-1]


def body(media: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = {media: {"schema": schema, **more}}
    return {"requestBody": {"required": True, "content": content}}


def query(name: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"parameters": [{"name": name, "in": "query", "schema": schema, **more}]}


@pytest.fixture(autouse=True)
def _no_child(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(openapi_document, "ask_child", _here)


DEEP = {"style": "deepObject", "explode": True}
FORMS: list[tuple[dict[str, Any], dict[str, Any], list[list[str]]]] = [
    # Stripe: nested lists and objects, and an empty text that unsets a field.
    (
        {"encoding": {"items": DEEP, "metadata": DEEP, "expand": DEEP}},
        {"items": [{"price": "p1", "n": 2}], "metadata": "", "expand": ["a", "b"]},
        [["items[0][price]", "p1"], ["items[0][n]", "2"], ["metadata", ""],
         ["expand[0]", "a"], ["expand[1]", "b"]],
    ),
    ({}, {"a": {"b": [1]}, "c": [True, None]}, [["a", '{"b": [1]}'], ["c", "true"], ["c", ""]]),
    ({"encoding": {"a": {"style": "form", "explode": False}}}, {"a": ["x,y", "z"]},
     [["a", "x,y,z"]]),
    ({"encoding": {"a": {"style": "pipeDelimited", "explode": False}}}, {"a": ["x", "y"]},
     [["a", "x|y"]]),
    ({"encoding": {"a": {"contentType": JSON}}}, {"a": ["x", 1]}, [["a", '["x", 1]']]),
    ({"encoding": {"a": {"explode": True}}}, {"a": {"k": "v", "l": 2}}, [["k", "v"], ["l", "2"]]),
]  # fmt: skip


@pytest.mark.parametrize(("more", "value", "form"), FORMS)
async def test_a_form_s_fields_follow_its_encoding(
    tmp_path: Path, more: dict[str, Any], value: dict[str, Any], form: list[list[str]]
) -> None:
    request = await sent(tmp_path, "/a", body(FORM, OBJECT, **more), {"body": value})
    assert request.form == form
    assert request.header("content-type") == [FORM]


QUERIES: list[tuple[dict[str, Any], Any, str]] = [
    (query("f", OBJECT, style="deepObject"), {"a": {"b": 1}, "c": ["x"]},
     "f%5Ba%5D%5Bb%5D=1&f%5Bc%5D%5B0%5D=x"),
    (query("f", TEXTS, style="pipeDelimited", explode=True), ["a", "b"], "f=a&f=b"),
    (query("f", TEXTS, style="spaceDelimited"), ["a b", "c"], "f=a%20b%20c"),
    (query("f", TEXTS, explode=False), [], ""),
    (query("f", TEXT, allowReserved=True), "a/b?c:d&e=f", "f=a/b?c:d%26e%3Df"),
    # Spring's page: an object whose fields are parameters.
    (query("f", OBJECT), {"page": 0, "sort": None}, "page=0"),
    (
        {"parameters": [{"name": "f", "in": "query", "content": {JSON: {"schema": OBJECT}}}]},
        {"a": 1},
        "f=%7B%22a%22%3A%201%7D",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("node", "value", "raw"), QUERIES)
async def test_a_query_s_parameters_are_written_in_their_style(
    tmp_path: Path, node: dict[str, Any], value: Any, raw: str
) -> None:
    assert (await sent(tmp_path, "/a", node, {"f": value})).query == raw


PATHS: list[tuple[str, dict[str, Any], Any, str]] = [
    ("/a/{v}", {"style": "label"}, ["x", "y"], "/a/.x,y"),
    ("/a/{v}", {"style": "label", "explode": True}, {"k": "x/y"}, "/a/.k=x%2Fy"),
    ("/a/{v}", {"style": "matrix"}, ["x", "y"], "/a/;v=x,y"),
    ("/a/{v}", {"style": "matrix", "explode": True}, ["x", "y"], "/a/;v=x;v=y"),
    ("/a/{v}", {"style": "matrix", "explode": True}, {"k": 1}, "/a/;k=1"),
    ("/a/{v}", {}, {"k": 1, "l": 2}, "/a/k,1,l,2"),
    # Google: a name with slashes, followed by an action.
    ("/v1/{+v}:cancel", {}, "projects/p/jobs/j 1", "/v1/projects/p/jobs/j%201:cancel"),
    ("/v1/{v}", {}, "projects/p", "/v1/projects%2Fp"),
    ("/名/{v}", {}, "ü", "/%E5%90%8D/%C3%BC"),
]


@pytest.mark.parametrize(("path", "more", "value", "raw"), PATHS)
async def test_a_path_s_parameters_are_written_in_their_style(
    tmp_path: Path, path: str, more: dict[str, Any], value: Any, raw: str
) -> None:
    parameter = {"name": "v", "in": "path", "required": True, "schema": {}, **more}
    assert (await sent(tmp_path, path, {"parameters": [parameter]}, {"v": value})).path == raw


BODIES: list[tuple[dict[str, Any], Any, str, bytes]] = [
    ({JSON: {"schema": {"type": "array"}}}, [1, "a"], JSON, b'[1, "a"]'),
    ({JSON: {"schema": {}}}, None, JSON, b"null"),
    ({JSON: {"schema": TEXT}}, "a", JSON, b'"a"'),
    ({"text/plain": {"schema": TEXT}}, "a\nü", "text/plain; charset=utf-8", "a\nü".encode()),
    ({"application/xml": {}}, "<a/>", "application/xml; charset=utf-8", b"<a/>"),
    # Kubernetes: any type for a new object; for a change the one that resembles the object.
    ({"*/*": {"schema": OBJECT}}, {"a": 1}, JSON, b'{"a": 1}'),
    (
        {"application/json-patch+json": {}, "application/merge-patch+json": {"schema": OBJECT}},
        {"a": None},
        "application/merge-patch+json",
        b'{"a": null}',
    ),
    # .NET: the same body under several media types, one of them with a star.
    ({"application/*+json": {}, "text/json": {}, JSON: {}}, {"a": 1}, JSON, b'{"a": 1}'),
    ({MULTIPART: {"schema": OBJECT}, FORM: {"schema": OBJECT}}, {"a": 1}, FORM, b"a=1"),
]


@pytest.mark.parametrize(("content", "value", "media", "raw"), BODIES)
async def test_a_body_uses_the_best_of_its_media_types(
    tmp_path: Path, content: dict[str, Any], value: Any, media: str, raw: bytes
) -> None:
    node = {"requestBody": {"content": content}}
    request = await sent(tmp_path, "/a", node, {"body": value})
    assert (request.header("content-type"), request.body) == ([media], raw)


async def test_a_multipart_form_is_sent_without_optional_files(
    tmp_path: Path,
) -> None:
    """FastAPI writes it like this: a schema by reference, and an optional file."""
    schemas = {
        "Form": {
            "type": "object",
            "properties": {
                "name": TEXT,
                "tags": TEXTS,
                "more": OBJECT,
                "file": {"type": "string", "contentMediaType": "application/octet-stream"},
            },
            "required": ["name"],
        }
    }
    node = body(MULTIPART, {"$ref": "#/components/schemas/Form"})
    value = {"name": "ü", "tags": ["a", "b"], "more": {"x": 1}}
    request = await sent(tmp_path, "/a", node, {"body": value}, components={"schemas": schemas})
    whole = BytesParser().parsebytes(
        b"Content-Type: " + request.header("content-type")[0].encode() + b"\n\n" + request.body
    )
    parts = [part for part in whole.walk() if not part.is_multipart()]
    got = [
        (part.get_param("name", header="content-disposition"), part.get_payload(decode=True))
        for part in parts
    ]
    assert got == [("name", "ü".encode()), ("tags", b"a"), ("tags", b"b"), ("more", b'{"x": 1}')]


async def test_a_cookie_is_sent_and_read_only_fields_are_not_requested(
    tmp_path: Path,
) -> None:
    """Django's documents have a session cookie, and one schema for both directions."""
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer", "readOnly": True}, "name": TEXT},
        "required": ["id", "name"],
        "additionalProperties": False,
    }
    cookie = {"name": "sid", "in": "cookie", "required": True, "schema": TEXT}
    node = {**body(JSON, schema), "parameters": [cookie]}
    request = await sent(tmp_path, "/a", node, {"sid": "a;b", "body": {"name": "x"}})
    assert request.header("cookie") == ["sid=a%3Bb"]


async def test_a_method_of_the_newest_openapi_version_is_sent(tmp_path: Path) -> None:
    request = await sent(tmp_path, "/a", body(JSON, OBJECT), {"body": {}}, method="query")
    assert request.method == "QUERY"


PLAIN_CONTENT = {"text/plain": {"schema": TEXT}}


async def test_a_parameter_with_a_media_type_is_written_in_it(tmp_path: Path) -> None:
    parameters = [
        {"name": "q", "in": "query", "content": PLAIN_CONTENT},
        {"name": "X-H", "in": "header", "content": PLAIN_CONTENT},
        {"name": "j", "in": "query", "content": {"application/x+json": {"schema": TEXT}}},
    ]
    request = await sent(
        tmp_path, "/a", {"parameters": parameters}, {"q": "a b", "X-H": "c d", "j": "e"}
    )
    assert request.query == "q=a%20b&j=%22e%22"
    assert request.header("x-h") == ["c d"]


async def test_a_secret_is_sent_once_whoever_else_names_it(tmp_path: Path) -> None:
    """A document's own path, the fields of an object, and a cookie."""
    parameters = [
        {"name": "f", "in": "query", "schema": OBJECT},
        {"name": "sid", "in": "cookie", "schema": TEXT},
    ]
    paths = {"/a?key=theirs&x=1": {"get": {"operationId": "act", "parameters": parameters}}}
    file = tmp_path / "api.json"
    file.write_text(json.dumps({"openapi": "3.0.3", "paths": paths}))
    api = RecordingApi()
    environ = {"KEY": "k-0815-key", "COOKIE": "sid=s-4711-cookie"}
    async with listening(api.app()) as url:
        settings = source(
            openapi=str(file), base_url=url, query_env={"key": "KEY"},
            headers_env={"Cookie": "COOKIE"},
        )  # fmt: skip
        async with joined(environ, s=settings) as sources:
            arguments: dict[str, Any] = {"f": {"key": "mine", "b": "2"}, "sid": "mine"}
            assert "error" not in await sources.call("s__act", arguments)
    [request] = api.requests
    assert request.pairs == [["x", "1"], ["b", "2"], ["key", "k-0815-key"]]
    assert request.header("cookie") == ["sid=s-4711-cookie"]


ODD_NAMES = """\
openapi: 3.1
paths:
  /a:
    get: {operationId: 2020, parameters: [{name: 1, in: query, schema: {type: string}}]}
    trace: {operationId: t}
    post:
      operationId: p
      servers: [{url: "https://api.example/"}]
      requestBody: {content: {application/json: {schema: {
        type: object, required: [id], properties: {id: {$ref: "#/components/schemas/Id"},
        v: {type: [string, null]}}}}}}
servers: [{url: "https://api.example"}]
components: {schemas: {Id: {type: string, readOnly: true}}}
"""


async def test_names_and_types_mean_what_their_yaml_means(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(ODD_NAMES)
    api = RecordingApi()
    async with (
        listening(api.app()) as url,
        joined(s=source(openapi=str(file), base_url=url)) as sources,
    ):
        assert {spec.name for spec in sources.specs} == {"s__2020", "s__t", "s__p"}
        calls: dict[str, Any] = {"2020": {"1": "x"}, "p": {"body": {"v": None}}}
        for tool, arguments in calls.items():
            answer = await sources.call(f"s__{tool}", arguments)
            assert "error" not in answer, answer
    assert [(request.query, request.body) for request in api.requests] == [
        ("1=x", b""), ("", b'{"v": null}'),
    ]  # fmt: skip


async def test_half_a_surrogate_pair_costs_only_its_operation(tmp_path: Path) -> None:
    parameter = {"name": "q", "in": "query", "schema": {"enum": ["\ud800"]}}
    paths = {
        "/a": {"get": {"operationId": "a", "parameters": [parameter]}},
        "/b\udfff": {"get": {"operationId": "b"}},
        "/c": {"get": {"operationId": "c\ud800"}},
        "/d": {"get": {"operationId": "d", "summary": "\ud800"}},
    }
    file = tmp_path / "api.json"
    file.write_text(json.dumps({"openapi": "3.0.3", "paths": paths}))
    async with joined(s=source(openapi=str(file), base_url="http://127.0.0.1:1")) as sources:
        state = sources.state()["s"]
        assert [spec.name for spec in sources.specs] == ["s__d"]
    assert (state["trouble"], len(state["left_out"])) == ("", 3)

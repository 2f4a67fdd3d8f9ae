"""Documents and arguments that try to redirect a request, or to crash or block the worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("jsonschema", reason="needs make install")

import httpx

from loopline.agents.tools import ToolFailed
from loopline.workers.tool_sources import SourceUnavailable
from loopline.workers.tool_sources.credentials import Credentials
from loopline.workers.tool_sources.openapi_child import Question, read_document
from loopline.workers.tool_sources.openapi_operation import Operation, Parameter, Style
from loopline.workers.tool_sources.openapi_request import request_of
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import error_of, joined, source
from tests.workers.tool_sources.recording_api import RecordingApi

TEXT: dict[str, Any] = {"type": "string"}
SECRETS = Credentials({"X-Key": "k-4711"}, {"key": "k-0815"}, {})


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths, **more}


def read(
    paths: dict[str, Any], *, base_url: str | None = "http://api.example/v1", **more: Any
) -> Any:
    question = Question(
        source="s",
        place=str(more.pop("place", "api.json")),
        base_url=base_url,
        allow=("*",),
        headers=frozenset({"x-key"}),
        query=frozenset({"key"}),
        document_bytes=0,
        seconds=1,
    )
    return read_document(question, json.dumps(document(paths, **more)).encode())


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("@evil.example/x", "does not start with /"),
        (".evil.example/x", "does not start with /"),
        (":81/x", "does not start with /"),
        ("x", "does not start with /"),
        ("http://evil.example/x", "does not start with /"),
        ("/../admin", "has a . or .. segment"),
        ("/a/%2e%2E/admin", "has a . or .. segment"),
        ("/a\\..\\b", "an invalid character"),
        ("/a\r\nHost: evil", "an invalid character"),
        ("/#Action=Go", "has a fragment"),
    ],
)
def test_a_path_outside_the_server_is_excluded_by_name(path: str, why: str) -> None:
    reading = read(
        {path: {"get": {"operationId": "odd"}}, "/fine": {"get": {"operationId": "fine"}}}
    )
    assert list(reading.specs) == ["s__fine"]
    [reason] = reading.left_out
    assert reason.startswith("odd: its path")
    assert why in reason


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("https://user:word@api.example", "a user name in it"),
        ("https://{host}/v1", "a variable without a default"),
        ("https:///v1", "no host"),
        ("https://a b.example", "invalid characters"),
        ("ftp://api.example", "set base_url"),
        ("/v1", "set base_url"),
    ],
)
def test_an_unusable_server_url_is_reported(server: str, why: str) -> None:
    with pytest.raises(SourceUnavailable, match=why):
        read({}, base_url=None, servers=[{"url": server}])


def test_a_server_s_variables_take_their_defaults_as_numbers_or_texts() -> None:
    variables = {"host": {"default": "api"}, "port": {"default": 8443}}
    servers = [{"url": " https://{host}.example:{port}/v1", "variables": variables}]
    assert read({}, base_url=None, servers=servers).base_url == "https://api.example:8443/v1"


STYLES = [
    Style(name=name, explode=explode, reserved=reserved)
    for name in ("simple", "label", "matrix", "json")
    for explode in (False, True)
    for reserved in (False, True)
]
FORM, DEEP = Style(name="form", explode=True), Style(name="deepObject", explode=True)
HOSTILE = st.lists(
    st.sampled_from(["/", "//", "\\", "@", "..", ".", "%2e", "%2f", "\r\n", "#", "?", ":", "x"])
    | st.characters()
).map("".join)


@given(
    st.sampled_from(["/{a}", "/{a}{b}", "/x/{a}.{b}", "/{+a}/{b}?x={b}", "/{a}:{b}"]),
    st.sampled_from(STYLES),
    HOSTILE | st.lists(HOSTILE) | st.dictionaries(HOSTILE, HOSTILE),
    HOSTILE,
)
@example("/{a}", Style(name="label", explode=False, reserved=True), "?", "@")
def test_no_argument_can_redirect_a_call_from_its_operation_and_server(
    path: str, style: Style, first: Any, second: str
) -> None:
    parameters = {
        "a": Parameter(name="a", place="path", style=style, required=True),
        "b": Parameter(name="b", place="path", style=style, required=True),
        "h": Parameter(name="H", place="header", style=STYLES[0], required=False),
        "c": Parameter(name="c", place="cookie", style=FORM, required=False),
        "q": Parameter(name="q", place="query", style=DEEP, required=False),
    }
    operation = Operation(method="GET", path=path, parameters=parameters)
    arguments = {"a": first, "b": second, "h": second, "c": first, "q": first}
    try:
        request = request_of(_http, "http://api.example/v1", operation, arguments, SECRETS)
    except ToolFailed:
        return
    url = request.url
    assert (url.scheme, url.host, url.port, url.userinfo) == ("http", "api.example", None, b"")
    sent = url.raw_path.decode()
    assert sent.startswith("/v1/")
    assert not {"..", "."} & set(sent.partition("?")[0].split("/"))
    assert not set(sent) & set("\r\n\\# ")
    assert request.headers.get_list("x-key") == ["k-4711"]
    assert url.params.get_list("key") == ["k-0815"]
    assert b"\n" not in b"".join(value for _, value in request.headers.raw)


_http = httpx.AsyncClient()


async def test_a_secret_is_sent_once_whatever_the_model_writes(tmp_path: Path) -> None:
    """A document may describe its own credentials as parameters of each operation."""
    parameters = [
        {"name": "X-KEY", "in": "header", "required": True, "schema": TEXT},
        {"name": "key", "in": "query", "required": True, "schema": TEXT},
        {"name": "q", "in": "query", "schema": TEXT},
    ]
    file = tmp_path / "api.json"
    file.write_text(
        json.dumps(document({"/a": {"get": {"operationId": "a", "parameters": parameters}}}))
    )
    api = RecordingApi()
    environ = {"HEADER": "k-4711-header", "QUERY": "k-0815-query"}
    async with listening(api.app()) as url:
        settings = source(
            openapi=str(file), base_url=f"{url}/v1?api-version=2",
            headers_env={"x-key": "HEADER"}, query_env={"key": "QUERY"},
        )  # fmt: skip
        async with joined(environ, s=settings) as sources:
            assert "error" not in await sources.call("s__a", {"q": "&key=mine"})
            assert "unexpected" in await error_of(sources, "s__a", key="mine")
    [request] = api.requests
    assert request.header("x-key") == ["k-4711-header"]
    assert request.path == "/v1/a"
    assert request.pairs == [["api-version", "2"], ["q", "&key=mine"], ["key", "k-0815-query"]]


def _reference_bomb() -> str:
    """A schema of 60,000 fields, which each of 1,000 operations references 30 times."""
    wide = {
        "type": "object",
        "properties": {f"f{n}": {"$ref": "#/components/schemas/Wide"} for n in range(20_000)},
    }
    node = {"requestBody": {"content": {"application/json": {"schema": {
        "properties": {f"a{n}": {"$ref": "#/components/schemas/Wide"} for n in range(30)}
    }}}}}  # fmt: skip
    paths = {f"/p{n}": {"post": node} for n in range(1_000)}
    return json.dumps(document(paths, components={"schemas": {"Wide": wide}}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 40_000, "nested more than 200 levels deep"),
        ("[" * 40_000, "nested too deeply"),
        ("? " * 40_000, "a key is not text"),
        ('{"openapi": "3.1.0", "a": 1, "a": 2}', "the key 'a' occurs twice"),
        ("openapi: 3.1.0\nx: &x [*x]\n", "the alias *x has no anchor"),
        ("openapi: 3.1.0\n---\nopenapi: 3.1.0\n", "a second document starts (line 2)"),
    ],
)
async def test_a_document_that_would_crash_its_reader_is_reported_without_harm(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(text)
    async with joined(s=source(openapi=str(file))) as sources:
        assert message in sources.state()["s"]["trouble"]


async def test_a_document_of_nested_references_is_read_quickly(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text(_reference_bomb())
    settings = source(openapi=str(file), base_url="http://127.0.0.1:1", connect_seconds=60)
    async with joined(s=settings) as sources:
        state = sources.state()["s"]
    assert state["trouble"] == ""
    assert "has more than 1000 parts" in state["left_out"][0]


@pytest.mark.parametrize("limit", [None, 16 << 20])
async def test_a_large_document_is_read_if_the_profile_allows_it(
    tmp_path: Path, limit: int | None
) -> None:
    paths = {
        f"/p{n}": {"get": {"operationId": f"p{n}", "description": "x" * 100_000}} for n in range(90)
    }
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document(paths)))
    more = {} if limit is None else {"max_document_bytes": limit}
    settings = source(openapi=str(file), base_url="http://127.0.0.1:1", allow=["p7"], **more)
    async with joined(s=settings) as sources:
        state = sources.state()["s"]
    if limit is None:
        assert "more than 8388608 bytes; raise max_document_bytes" in state["trouble"]
    else:
        assert (state["tools"], state["trouble"]) == (1, "")

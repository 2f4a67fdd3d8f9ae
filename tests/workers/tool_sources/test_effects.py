"""A source's hints about its tools' effects, and the key that is sent with a call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

pytest.importorskip("jsonschema", reason="needs make install")

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations

from loopline.agents.tools import ToolContext
from loopline.workers.tool_sources.mcp_source import IDEMPOTENCY_KEY
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import joined, source
from tests.workers.tool_sources.recording_api import RecordingApi

CONTEXT = ToolContext(key="run-7/0/0/1")
KEY_PARAMETER = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}


@pytest.fixture
def api_file(tmp_path: Path) -> str:
    """An API of one path, with an operation for each method."""
    methods = ("get", "head", "put", "post", "delete", "patch")
    item = {method: {"operationId": method} for method in methods}
    item["post"]["parameters"] = [KEY_PARAMETER]  # type: ignore[assignment]
    file = tmp_path / "api.json"
    file.write_text(
        json.dumps(
            {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {"/a": item}}
        )
    )
    return str(file)


async def test_read_only_http_operations_may_be_repeated_and_others_happen_once(
    api_file: str,
) -> None:
    settings = source(openapi=api_file, base_url="http://127.0.0.1:9", effects={"pu*": "keyed"})
    async with joined(s=settings) as sources:
        effects = {
            name: sources.tool(f"s__{name}").effect
            for name in ("get", "head", "put", "post", "delete", "patch")
        }
    assert effects == {
        "get": "none", "head": "none", "put": "keyed", "post": "once", "delete": "once",
        "patch": "once",
    }  # fmt: skip


async def test_a_call_that_changes_something_carries_its_key(api_file: str) -> None:
    api = RecordingApi()
    async with listening(api.app()) as url:
        settings = source(openapi=api_file, base_url=url)
        async with joined(s=settings) as sources:
            await sources.tool("s__get").carry_out({}, CONTEXT)
            await sources.tool("s__put").carry_out({}, CONTEXT)
            await sources.tool("s__post").carry_out({"Idempotency-Key": "the model's"}, CONTEXT)
    keys = [request.header("idempotency-key") for request in api.requests]
    assert keys == [[], [CONTEXT.key], ["the model's"]]


async def test_an_api_that_cuts_off_its_answer_leaves_the_outcome_unknown(
    api_file: str,
) -> None:
    async with joined(s=source(openapi=api_file, base_url="http://127.0.0.1:9")) as sources:
        refused = await sources.tool("s__post").carry_out({}, CONTEXT)
    assert not refused.unknown  # no server was reached
    api = RecordingApi(
        {"/a": {"status": 200, "headers": {"content-encoding": "gzip"}, "body": "no gzip"}}
    )
    async with (
        listening(api.app()) as url,
        joined(s=source(openapi=api_file, base_url=url)) as sources,
    ):
        broken = await sources.tool("s__post").carry_out({}, CONTEXT)
    assert "can't be read" in broken.unknown


async def test_a_server_error_leaves_the_outcome_unknown_and_a_refusal_does_not(
    api_file: str,
) -> None:
    unknown: list[str] = []
    for status in (500, 504, 409):
        api = RecordingApi({"/a": {"status": status, "headers": {}, "body": "sorry"}})
        async with (
            listening(api.app()) as url,
            joined(s=source(openapi=api_file, base_url=url)) as sources,
        ):
            unknown.append((await sources.tool("s__post").carry_out({}, CONTEXT)).unknown)
    assert unknown == ["HTTP 500: sorry", "HTTP 504: sorry", ""]


async def test_an_mcp_server_s_hints_are_trusted_and_its_calls_carry_their_key() -> None:
    server = MCPServer("bank")
    keys: list[object] = []

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def balance() -> str:
        """Look."""
        return "5"

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    def close() -> str:
        """Close."""
        return "closed"

    @server.tool()
    def pay(context: Context) -> str:
        """Pay."""
        meta = context.request_context.meta
        keys.append((meta or {}).get(IDEMPOTENCY_KEY))
        return "paid"

    async with (
        listening(server.streamable_http_app()) as url,
        joined(s=source(mcp={"url": f"{url}/mcp"})) as sources,
    ):
        effects = [sources.tool(f"s__{name}").effect for name in ("balance", "close", "pay")]
        answer = await sources.tool("s__pay").carry_out({}, CONTEXT)
    assert effects == ["none", "keyed", "once"]
    assert answer.value == {"result": "paid"}
    assert keys == [CONTEXT.key]


async def test_calls_of_a_source_need_approval_by_name_and_by_arguments(api_file: str) -> None:
    large = {"properties": {"euros": {"minimum": 50}}, "required": ["euros"]}
    rules = {"delete": True, "po*": large, "*": False}
    settings = source(
        openapi=api_file, base_url="http://127.0.0.1:9", requires_approval=rules,
        approval_seconds=60,
    )  # fmt: skip
    async with joined(s=settings) as sources:

        async def needs(name: str, **arguments: JsonValue) -> bool:
            return await sources.tool(f"s__{name}").needs_approval(arguments, CONTEXT)

        assert [await needs(name) for name in ("delete", "get", "post")] == [True, False, False]
        assert [await needs("post", euros=euros) for euros in (49, 50)] == [False, True]
        assert sources.tool("s__post").approval_seconds == 60


async def test_a_source_with_an_unreadable_approval_rule_allows_no_call(
    api_file: str,
) -> None:
    settings = source(
        openapi=api_file, base_url="http://127.0.0.1:9", requires_approval={"post": {"type": 7}}
    )
    async with joined(s=settings) as sources:
        assert "is not a JSON schema" in str(sources.state()["s"]["trouble"])
        assert "can't be used" in str(await sources.call("s__post", {}))

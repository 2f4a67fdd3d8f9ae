"""HTTP APIs with OpenAPI documents: the offered operations, the requests, the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="needs make install")

import yaml

from loopline.workers.tool_sources.sources import ToolSources
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import error_of, joined, source, text_of
from tests.workers.tool_sources.town_api import document, town_api

TOKEN = "tok-4711-secret"
ENVIRON = {"TOWN_TOKEN": TOKEN, "TOWN_KEY": "key/0815+x"}


@asynccontextmanager
async def api(**values: object) -> AsyncGenerator[ToolSources]:
    async with (
        listening(town_api()) as url,
        joined(ENVIRON, town=source(openapi=f"{url}/openapi.json", **values)) as sources,
    ):
        yield sources


async def seen(sources: ToolSources, name: str, /, **arguments: Any) -> Any:
    return json.loads(await text_of(sources, name, **arguments))


async def test_operations_are_offered_with_plain_schemas_and_excluded_ones_are_reported() -> None:
    async with api() as sources:
        specs = {spec.name.removeprefix("town__"): spec for spec in sources.specs}
        left_out = sources.state()["town"]["left_out"]
    assert set(specs) == {
        "see", "add_pet", "form", "big", "away", "hangs", "missing", "get__picture", "cookie",
    }  # fmt: skip
    assert specs["see"].description == "What the server sees."
    arguments = specs["see"].parameters["properties"]
    assert isinstance(arguments, dict)
    assert list(arguments) == ["place", "tags", "ids", "page", "query_body", "X-Mood"]
    assert specs["see"].parameters["required"] == ["place"]
    pet = {"type": ["string", "null"]}
    assert specs["add_pet"].parameters["properties"] == {
        "place": {"type": "string"},
        "body": {
            "type": "object",
            "properties": {"name": pet, "friend": {}},
            "required": ["name"],
        },
    }
    assert left_out == [
        "upload: it needs a body of another kind: multipart/form-data",
        "elsewhere: it is on a server of its own: https://evil.example",
    ]


async def test_arguments_are_placed_as_the_document_specifies() -> None:
    async with api() as sources:
        got = await seen(
            sources,
            "town__see",
            **{"place": "a b?", "tags": ["x", "y"], "ids": ["1", "2"], "X-Mood": "good"},
            page={"size": 3},
            query_body=True,
        )
        pet = await seen(sources, "town__add_pet", place="zoo", body={"name": None})
        form = await seen(sources, "town__form", body={"a": "1 & 2"})
    assert got["place"] == "a b?"
    assert got["query"] == [
        ["tags", "x"], ["tags", "y"], ["ids", "1|2"], ["page[size]", "3"], ["body", "true"],
    ]  # fmt: skip
    assert (got["mood"], got["authorization"]) == ("good", None)
    assert (pet["kind"], json.loads(pet["body"])) == ("application/json", {"name": None})
    assert form == "a=1+%26+2"


async def test_secrets_are_sent_and_never_shown() -> None:
    secrets = {"bearer_env": "TOWN_TOKEN", "query_env": {"key": "TOWN_KEY"}}
    async with api(**secrets) as sources:
        got = await seen(sources, "town__see", place="x")
    assert got["authorization"] == "Bearer ***"
    assert got["query"] == [["key", "***"]]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("see", {}, "'place' is a required property"),
    ("see", {"place": "..", "tags": []}, "can't be part of a path"),
    ("see", {"place": "x", "Authorization": "mine"}, "'Authorization' was unexpected"),
    ("see", {"place": "x", "X-Mood": "a\r\nHost: evil"}, "X-Mood: a header can't carry a line"),
    ("away", {}, "HTTP 307: a redirect, which is not followed"),
    ("missing", {}, 'HTTP 404: {"detail":"no such thing"}'),
    ("hangs", {}, "took longer than 0.5 s"),
    ("upload", {}, "offers no tool town__upload"),
]


async def test_a_failed_call_reports_the_reason() -> None:
    async with api(timeout_seconds=0.5) as sources:
        for name, arguments, message in WRONG:
            assert message in await error_of(sources, f"town__{name}", **arguments)


async def test_an_answer_of_fifty_megabytes_is_read_in_part_and_marked() -> None:
    async with api(max_response_bytes=2_000_000) as sources:
        answer = await sources.call("town__big", {})
        picture = await text_of(sources, "town__get__picture")
    assert answer == {"result": "x" * 20_000, "truncated": True, "full_chars": 2_000_000}
    assert picture == "[image/png, 4 bytes: not shown]"


async def test_a_document_from_the_network_cannot_redirect_calls() -> None:
    async with (
        listening(town_api()) as url,
        joined(
            town=source(openapi=f"{url}/openapi.json?server=https://evil.example/v1"),
            meant=source(
                openapi=f"{url}/openapi.json?server=https://x.example", base_url=f"{url}/v1"
            ),
        ) as sources,
    ):
        assert "on another host" in sources.state()["town"]["trouble"]
        assert (await seen(sources, "meant__see", place="x"))["place"] == "x"


@pytest.mark.parametrize(
    ("path", "operation", "offered"),
    [
        ("/v2", None, False),
        (None, "/v2", False),
        (None, "http://127.0.0.1:1/v2", False),
        ("/v1/", None, True),
        ("/v2", "http://127.0.0.1:1/v1", True),
    ],
)
async def test_an_operation_on_another_path_of_the_host_is_excluded(
    tmp_path: Path, path: str | None, operation: str | None, offered: bool
) -> None:
    """An operation's server takes precedence over its path's."""
    node: dict[str, Any] = {"get": {"operationId": "see"}}
    for place, url in ((node, path), (node["get"], operation)):
        if url is not None:
            place["servers"] = [{"url": url}]
    file = tmp_path / "town.json"
    file.write_text(json.dumps({**document("http://127.0.0.1:1/v1"), "paths": {"/seen": node}}))
    async with joined(town=source(openapi=str(file))) as sources:
        assert [spec.name for spec in sources.specs] == ["town__see"] * offered
        left_out = sources.state()["town"]["left_out"]
    location = operation or path
    assert left_out == ([] if offered else [f"see: it is on a server of its own: {location}"])


async def test_an_operation_that_repeats_the_document_s_server_uses_the_profile_s(
    tmp_path: Path,
) -> None:
    file = tmp_path / "town.json"
    async with listening(town_api()) as url:
        specification = document("https://x.example/")
        specification["paths"]["/seen/{place}"]["servers"] = specification["servers"]
        file.write_text(json.dumps(specification))
        async with joined(town=source(openapi=str(file), base_url=f"{url}/v1")) as sources:
            assert (await seen(sources, "town__see", place="x"))["place"] == "x"


async def test_a_document_can_be_a_yaml_file(tmp_path: Path) -> None:
    path = tmp_path / "town.yaml"
    async with listening(town_api()) as url:
        path.write_text(yaml.safe_dump(document(f"{url}/v1")))
        async with joined(town=source(openapi=str(path), allow=["see"])) as sources:
            assert [spec.name for spec in sources.specs] == ["town__see"]
            assert (await seen(sources, "town__see", place="x"))["place"] == "x"


BOMB = "openapi: 3.0.0\na0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)

WIDE_BOMB = (
    f"openapi: 3.0.0\na: &a [{', '.join(['x'] * 30_000)}]\nb: [{', '.join(['*a'] * 30_000)}]\n"
)
"""Two levels with 900 million values."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON or YAML object"),
        (WIDE_BOMB, "more than 500000 values"),
        ("[1]", "not a JSON or YAML object"),
        ("a: [", "not a JSON or YAML object"),
        ("[" * 100_000, "not a JSON or YAML object"),
        (BOMB, "more than 500000 values"),
        ("a: !!python/object/apply:os.getcwd []", "not a JSON or YAML object"),
        ('{"swagger": "2.0"}', "Swagger 2 (convert it to OpenAPI 3)"),
        ('{"openapi": "3.0.0", "paths": {}}', "set base_url"),
        ("\x00", "not a JSON or YAML object"),
    ],
)
async def test_an_unreadable_document_is_reported_by_name(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "town.yaml"
    path.write_text(text)
    async with joined(town=source(openapi=str(path))) as sources:
        trouble = sources.state()["town"]["trouble"]
    assert message in trouble
    assert str(path) in trouble
    assert len(trouble) < 1_000


async def test_a_missing_document_is_read_when_it_appears(tmp_path: Path) -> None:
    path = tmp_path / "town.json"
    async with joined(town=source(openapi=str(path))) as sources:
        assert "No such file" in await error_of(sources, "town__see", place="x")
        path.write_text(json.dumps(document("http://127.0.0.1:1/v1")))
        async with asyncio.timeout(10):
            while not sources.specs:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        assert "was not reached" in await error_of(sources, "town__see", place="x")

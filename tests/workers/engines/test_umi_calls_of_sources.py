"""The caller's constraint on the tools of real sources: an MCP server's, an OpenAPI document's,
ToolBench's. Their schemas compile, and the constraint on a call agrees with a plain check of
them."""

from __future__ import annotations

import datetime
import enum
import json
import os
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from llguidance.hf import from_tokenizer
from pydantic import BaseModel, ConfigDict, Field
from transformers import PreTrainedTokenizerFast

pytest.importorskip("mcp", reason="needs make install")

from jsonschema import Draft202012Validator
from mcp.server import MCPServer

from loopline.agents.records import JsonObject, ToolSpec
from loopline.agents.roles.umi.output import call_schema
from loopline.trainers.data.sources import from_toolbench
from loopline.workers.engines.grammar.compiler import GrammarCompiler
from loopline.workers.engines.local.model_files import MICRO_MODELS
from loopline.workers.engines.protocol import EngineError
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import joined, source
from tests.workers.tool_sources.town_api import town_api
from tests.workers.tool_sources.town_server import town

OF_ANY_KIND = (None, True, 7, 0.5, "x", ["x"], {"x": "x"})


class Caller:
    """The vocabulary of the shipped caller with its compiler."""

    def __init__(self) -> None:
        self.tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(MICRO_MODELS / "umi")
        end: int = self.tokenizer.eos_token_id
        self.compiler = GrammarCompiler(
            lambda: from_tokenizer(self.tokenizer, eos_token=[end]), [end]
        )

    def can_write(self, tools: Sequence[ToolSpec], name: str, arguments: object) -> bool:
        """Tell whether the call fits the constraint of these tools and is complete."""
        matcher = self.compiler.matcher(call_schema(tools))
        text = json.dumps({"Action": name, "Action Input": arguments}, ensure_ascii=False)
        try:
            for token in self.tokenizer.encode(text, add_special_tokens=False):
                matcher.consume(token)
        except EngineError:
            return False
        return matcher.complete


@pytest.fixture(scope="module")
def caller() -> Caller:
    return Caller()


def valid(schema: JsonObject, value: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)


def example(schema: Any, *, whole: bool) -> Any:
    """Return a value of the schema with all properties, or with only the required ones. The
    properties are in its order: a grammar allows no other."""
    match schema:
        case {"const": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_, last]}:
            return example(first if whole else last, whole=whole)
        case {"type": "object"}:
            properties, needed = schema.get("properties", {}), schema.get("required", ())
            arguments = {
                name: example(property_schema, whole=whole)
                for name, property_schema in properties.items()
                if whole or name in needed
            }
            more = schema.get("additionalProperties")
            return (
                {**arguments, "more": example(more, whole=whole)} if whole and more else arguments
            )
        case {"type": "array"}:
            items = example(schema.get("items", {}), whole=whole)
            return [items] * schema.get("minItems", int(whole))
        case {"type": "string"}:
            return "ü" * schema.get("minLength", 3)
        case {"type": "integer" | "number"}:
            return schema.get("minimum", schema.get("exclusiveMinimum", 6) + 1)
        case {"type": "boolean"}:
            return whole
        case _:
            return None


def wrong_arguments(tool: ToolSpec, right: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield calls with one argument of another type, one missing, one too many."""
    parameters: Any = tool.parameters
    for name, schema in parameters["properties"].items():
        for value in OF_ANY_KIND:
            if not valid(schema, value):
                yield {**right, name: value}
    for name in parameters.get("required", ()):
        yield {key: value for key, value in right.items() if key != name}
    if not valid(parameters, {**right, "one_too_many": 1}):
        yield {**right, "one_too_many": 1}


def check(caller: Caller, tools: Sequence[ToolSpec]) -> tuple[int, int]:
    """Check each tool, offered alone and among all of them; return the number of accepted and
    refused calls."""
    accepted = refused = 0
    for tool in tools:
        for offered in ([tool], tools):
            for whole in (True, False):
                right = example(tool.parameters, whole=whole)
                assert valid(tool.parameters, right), (tool.name, right)
                assert caller.can_write(offered, tool.name, right), (tool.name, right)
                assert not caller.can_write(offered, f"{tool.name}_", right), tool.name
                accepted, refused = accepted + 1, refused + 1
        whole_one = example(tool.parameters, whole=True)
        for wrong in wrong_arguments(tool, whole_one):
            assert not valid(tool.parameters, wrong), (tool.name, wrong)
            assert not caller.can_write(tools, tool.name, wrong), (tool.name, wrong)
            refused += 1
    return accepted, refused


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    name: Annotated[str, Field(min_length=1, max_length=50, pattern="^[A-Z]")]
    age: Annotated[int, Field(ge=0, le=150)] | None = None
    friends: list[Person] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool


class Condition(BaseModel):
    model_config = ConfigDict(extra="forbid")

    field: str
    operator: Literal["=", "<"] = "="
    value: str | int | bool | None


def registry() -> MCPServer:
    """Create a server whose tools have the parameters of typed Python functions."""
    server = MCPServer("registry")

    @server.tool()
    def enter(
        who: Person,
        when: datetime.datetime,
        colours: list[Colour],
        limit: Annotated[int, Field(gt=0, le=100)] = 10,
    ) -> str:
        """Enter a person."""
        return who.name

    @server.tool()
    def find(
        pet: Annotated[Cat | Dog, Field(discriminator="kind")],
        labels: dict[str, int],
        conditions: list[Condition] | None = None,
    ) -> str:
        """Find a pet."""
        return pet.kind

    @server.tool()
    def pay(
        amount: Decimal,
        share: Annotated[float, Field(ge=0, lt=1)],
        step: Annotated[int, Field(multiple_of=5)] = 5,
        pair: tuple[int, str] = (1, ""),
        anything: object = None,
    ) -> str:
        """Pay."""
        return ""

    return server


@pytest.mark.parametrize("server", [town, registry])
async def test_the_caller_is_constrained_to_the_schemas_of_an_mcp_server_s_tools(
    caller: Caller, server: Any
) -> None:
    async with (
        listening(server().streamable_http_app()) as url,
        joined(some=source(mcp={"url": f"{url}/mcp"})) as sources,
    ):
        tools = sources.specs
    listed = await server().list_tools()
    assert len(tools) == len(listed)
    accepted, refused = check(caller, tools)
    assert accepted == 4 * len(tools)
    assert refused > 30


async def test_the_caller_is_constrained_to_the_schemas_of_openapi_operations(
    caller: Caller,
) -> None:
    async with (
        listening(town_api()) as url,
        joined(town=source(openapi=f"{url}/openapi.json")) as sources,
    ):
        tools = sources.specs
    assert len(tools) == 9
    accepted, refused = check(caller, tools)
    assert accepted == 36
    assert refused > 60


@pytest.mark.skipif("LOOPLINE_DATA" not in os.environ, reason="LOOPLINE_DATA is not set")
def test_the_caller_is_constrained_to_every_toolbench_tool_s_schema(
    caller: Caller,
) -> None:
    ways = from_toolbench(Path(os.environ["LOOPLINE_DATA"])).trajectories
    assert sum(len(way.tools) for way in ways) == 79
    written = 0
    for way in ways:
        accepted, refused = check(caller, way.tools)
        assert accepted == 4 * len(way.tools) < refused
        offered = {tool.name: tool.parameters for tool in way.tools}
        for step in way.steps:
            call = step.call
            if call is None or call.name not in offered:
                continue
            same = valid(offered[call.name], call.arguments)
            assert caller.can_write(way.tools, call.name, call.arguments) == same, call
            written += same
    assert written == 36

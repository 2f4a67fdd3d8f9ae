"""Tools of the Responses API.

Models call functions only. A client's other tools are functions for a model, and the model's calls
of them are the client's calls again:

* A tool in a namespace is a function whose name begins with the namespace's name.
* A custom tool, whose input is a text, is a function with that text as its one parameter. The model
  reads the text's grammar in the parameter's description; nothing enforces it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from loopline.agents.records import MAX_TOOLS, JsonObject, ToolCall, ToolSpec
from loopline.runtime.gateway.chat_request import TextFormat
from loopline.runtime.gateway.chat_response import tool_call_body
from loopline.runtime.gateway.wire_model import WireModel, type_tag

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_INPUT = "input"
"""Parameter of the function that stands for a custom tool."""
_LONGEST_NAME = 64


class FunctionTool(WireModel):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None

    def spec(self, name: str) -> ToolSpec:
        return ToolSpec(
            name=name,
            description=self.description or "",
            parameters=self.parameters or {"type": "object", "properties": {}},
            strict=self.strict,
        )


class Grammar(WireModel):
    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


InputFormat = Annotated[TextFormat | Grammar, Field(discriminator="type")]


class CustomTool(WireModel):
    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: InputFormat = TextFormat(type="text")

    def spec(self, name: str) -> ToolSpec:
        text: JsonObject = {"type": "string"}
        if isinstance(self.format, Grammar):
            kind = {"lark": "Lark grammar", "regex": "regular expression"}[self.format.syntax]
            text["description"] = f"A text that this {kind} accepts:\n{self.format.definition}"
        return ToolSpec(
            name=name,
            description=self.description or "",
            parameters={
                "type": "object",
                "properties": {_INPUT: text},
                "required": [_INPUT],
                "additionalProperties": False,
            },
        )


class NamespaceTool(WireModel):
    """A group of tools, as Codex sends those of an MCP server."""

    type: Literal["namespace"]
    name: Name
    description: str = ""
    tools: list[Annotated[FunctionTool | CustomTool, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MAX_TOOLS
    )


Tool = Annotated[
    Annotated[FunctionTool, Tag("<function>")]
    | Annotated[CustomTool, Tag("<custom>")]
    | Annotated[NamespaceTool, Tag("<namespace>")],
    Discriminator(
        type_tag,
        custom_error_type="unknown_tool",
        custom_error_message=(
            "its type must be 'function', 'custom' or 'namespace'; tools that OpenAI's servers run"
            ' do not exist here: turn them off in the client (Codex: web_search = "disabled")'
        ),
    ),
]


class ToolName(WireModel):
    """A tool that the model must call, or may call."""

    type: Literal["function", "custom"]
    name: str


class AllowedToolsChoice(WireModel):
    """Choice among some of the tools. Only these are offered to the model."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[ToolName] = Field(min_length=1, max_length=MAX_TOOLS)


Choice = (
    Literal["auto", "none", "required"]
    | Annotated[
        Annotated[ToolName, Tag("<function>")]
        | Annotated[ToolName, Tag("<custom>")]
        | Annotated[AllowedToolsChoice, Tag("<allowed_tools>")],
        Discriminator(type_tag),
    ]
)


class ToolForm(BaseModel):
    """How a client declared a tool that is not just a function."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    namespace: str | None = None
    input: InputFormat | None = None
    """A custom tool's format; None for a function."""


class DeclaredTools(NamedTuple):
    """A client's tools as functions for a model."""

    specs: tuple[ToolSpec, ...]
    forms: dict[str, ToolForm]
    """Forms of the tools that are not just functions, by the function's name."""
    namespaces: dict[str, str]
    """Descriptions of the namespaces."""


def as_functions(tools: Iterable[FunctionTool | CustomTool | NamespaceTool]) -> DeclaredTools:
    specs: list[ToolSpec] = []
    forms: dict[str, ToolForm] = {}
    namespaces: dict[str, str] = {}

    def add(tool: FunctionTool | CustomTool, namespace: str | None) -> None:
        name = function_name(tool.name, namespace)
        specs.append(tool.spec(name))
        input_format = tool.format if isinstance(tool, CustomTool) else None
        if namespace is not None or input_format is not None:
            forms[name] = ToolForm(name=tool.name, namespace=namespace, input=input_format)

    for tool in tools:
        if isinstance(tool, NamespaceTool):
            namespaces[tool.name] = tool.description
            for member in tool.tools:
                add(member, tool.name)
        else:
            add(tool, None)
    return DeclaredTools(tuple(specs), forms, namespaces)


def function_name(name: str, namespace: str | None) -> str:
    """Return the name of the function that stands for a tool: a name that every endpoint accepts,
    and that only depends on these names."""
    if namespace is None:
        return name
    whole = f"{namespace}__{name}"
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: _LONGEST_NAME - 9]}_{digest}"


def arguments_of_text(text: str) -> str:
    """Return the arguments of a custom tool's function for the tool's input."""
    return json.dumps({_INPUT: text}, ensure_ascii=False)


def call_fields(call: ToolCall, forms: Mapping[str, ToolForm]) -> dict[str, Any]:
    """Return the fields of the item for a call, apart from its id and status."""
    function = tool_call_body(call)["function"]
    form = forms.get(call.name) or ToolForm(name=call.name)
    fields: dict[str, Any] = {"call_id": call.id, "name": form.name}
    if form.namespace is not None:
        fields["namespace"] = form.namespace
    if call.extra_content is not None:
        fields["extra_content"] = call.extra_content
    if form.input is None:
        return {"type": "function_call", **fields, "arguments": function["arguments"]}
    text = (call.arguments or {}).get(_INPUT)
    # A model may write the text itself where the function's arguments are expected.
    text = text if isinstance(text, str) else function["arguments"]
    return {"type": "custom_tool_call", **fields, "input": text}


def tool_bodies(
    specs: Sequence[ToolSpec], forms: Mapping[str, ToolForm], namespaces: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the tools as the client declared them."""
    bodies: list[dict[str, Any]] = []
    members: dict[str, list[dict[str, Any]]] = {}
    for spec in specs:
        form = forms.get(spec.name) or ToolForm(name=spec.name)
        if form.input is None:
            body = {"type": "function", **spec.model_dump(mode="json"), "strict": spec.strict}
        else:
            text = form.input.model_dump(mode="json")
            body = {"type": "custom", "description": spec.description, "format": text}
        body["name"] = form.name
        if form.namespace is None:
            bodies.append(body)
            continue
        if form.namespace not in members:
            members[form.namespace] = []
            bodies.append(
                {
                    "type": "namespace",
                    "name": form.namespace,
                    "description": namespaces.get(form.namespace, ""),
                    "tools": members[form.namespace],
                }
            )
        members[form.namespace].append(body)
    return bodies

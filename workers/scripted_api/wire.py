"""The part of the Chat Completions format that the scripted server reads and writes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from loopline.agents.records import (
    ANY_JSON_OBJECT,
    JsonObject,
    Message,
    SamplingParams,
    ToolCall,
    ToolChoice,
    ToolSpec,
)
from loopline.agents.tools.json_arguments import parse_arguments


class _Wire(BaseModel):
    """Base model that ignores unknown fields, as a provider older than its client does."""

    model_config = ConfigDict(extra="ignore")


class WireFunction(_Wire):
    name: str
    arguments: str = "{}"


class WireToolCall(_Wire):
    id: str
    type: Literal["function"] = "function"
    function: WireFunction


class WirePart(_Wire):
    type: Literal["text"]
    text: str


class WireMessage(_Wire):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[WirePart] | None = None
    tool_calls: list[WireToolCall] = Field(default_factory=list[WireToolCall])
    tool_call_id: str | None = None

    def message(self) -> Message:
        """The turn as a record."""
        content = self.content or ""
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        calls: list[ToolCall] = []
        for call in self.tool_calls:
            arguments, error = parse_arguments(call.function.arguments)
            calls.append(
                ToolCall(
                    id=call.id,
                    name=call.function.name,
                    arguments=arguments,
                    raw_arguments=call.function.arguments,
                    error=error,
                )
            )
        return Message(
            role="system" if self.role == "developer" else self.role,
            content=content,
            tool_calls=tuple(calls),
            tool_call_id=self.tool_call_id,
        )


class WireToolFunction(_Wire):
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: JsonObject = Field(default_factory=dict)


class WireTool(_Wire):
    type: Literal["function"]
    function: WireToolFunction


class WireNamed(_Wire):
    name: str


class WireToolChoice(_Wire):
    type: Literal["function"]
    function: WireNamed


class WireSchema(_Wire):
    name: str
    schema_: JsonObject = Field(alias="schema")


class WireResponseFormat(_Wire):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: WireSchema | None = None


class WireStreamOptions(_Wire):
    include_usage: bool = False


class ChatRequest(_Wire):
    """Body of POST /v1/chat/completions."""

    model: str
    messages: list[WireMessage] = Field(min_length=1)
    tools: list[WireTool] = Field(default_factory=list[WireTool])
    tool_choice: Literal["none", "auto", "required"] | WireToolChoice = "auto"
    parallel_tool_calls: bool = True
    n: int = Field(default=1, ge=1, le=64)
    seed: int | None = None
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    """Both are validated, but the scripted answer does not depend on them."""
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: WireStreamOptions = WireStreamOptions()
    logprobs: bool = False
    return_token_ids: bool = False
    response_format: WireResponseFormat | None = None

    def conversation(self) -> tuple[Message, ...]:
        return tuple(message.message() for message in self.messages)

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(
            ToolSpec(
                name=tool.function.name,
                description=tool.function.description,
                parameters=tool.function.parameters,
            )
            for tool in self.tools
        )

    def choice(self) -> ToolChoice:
        """Raises ApiError if the tool does not exist."""
        choice = self.tool_choice
        if isinstance(choice, str):
            if choice == "required" and not self.tools:
                raise ApiError(
                    400, "invalid_request_error", "tool_choice is only allowed with tools."
                )
            return ToolChoice(mode=choice)
        name = choice.function.name
        if name not in [tool.function.name for tool in self.tools]:
            raise ApiError(
                400, "invalid_request_error", f"Tool choice {name!r} not found in tools."
            )
        return ToolChoice(mode="required", name=name)

    def sampling(self) -> SamplingParams:
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=self.max_completion_tokens or self.max_tokens or 4096,
            stop=tuple(stop),
            seed=self.seed,
            n=self.n,
        )

    def json_schema(self) -> JsonObject | None:
        wanted = self.response_format
        if wanted is not None and wanted.type == "json_object":
            return ANY_JSON_OBJECT
        return wanted.json_schema.schema_ if wanted and wanted.json_schema else None


class ApiError(Exception):
    """An error in OpenAI's format."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = {"error": {"message": message, "type": "scripted", "param": None, "code": code}}

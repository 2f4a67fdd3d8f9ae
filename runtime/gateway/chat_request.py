"""The body of `POST /v1/chat/completions` in the format of OpenAI's API, and the run made from
it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    model_validator,
)

from loopline.agents.message_parts import ContentPart
from loopline.agents.records import (
    ANY_JSON_OBJECT,
    MAX_TOOLS,
    NOTHING_CHOSEN,
    Effort,
    GenerationOptions,
    JsonObject,
    Message,
    ToolCall,
    ToolChoice,
    ToolSpec,
    Verbosity,
)
from loopline.agents.roles.chat import NO_OPTIONS, ChatOptions
from loopline.agents.template_options import TemplateOptions
from loopline.agents.tools.json_arguments import parse_arguments
from loopline.runtime.gateway.content_parts import ImageDetail, image_part, user_message
from loopline.runtime.gateway.errors import field_error, invalid
from loopline.runtime.gateway.wire_model import WireModel, type_tag

MAX_MESSAGES = 10_000


class _Part(WireModel):
    cache_control: JsonValue = None
    """A provider's marker for the end of a prompt's cached part. Caches here find it themselves."""
    prompt_cache_breakpoint: JsonValue = None
    """OpenAI's marker for the same."""


class TextPart(_Part):
    type: Literal["text", "input_text", "output_text"]
    text: str


class RefusalPart(_Part):
    type: Literal["refusal"]
    refusal: str


class ImageUrl(WireModel):
    url: str
    detail: ImageDetail | None = None


class ImagePart(_Part):
    type: Literal["image_url"]
    image_url: ImageUrl


class OtherPart(BaseModel):
    """Part with audio or a file, which no model here accepts."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str


def _tag_of_part(part: Any) -> str:
    match type_tag(part):
        case "<input_text>" | "<output_text>":
            return "<text>"
        case "<text>" | "<refusal>" | "<image_url>" as tag:
            return tag
        case _:
            return "<other>"


StopText = Annotated[str, Field(min_length=1)]
Part = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[RefusalPart, Tag("<refusal>")]
    | Annotated[ImagePart, Tag("<image_url>")]
    | Annotated[OtherPart, Tag("<other>")],
    Discriminator(_tag_of_part),
]
Content = str | list[Part] | None


class _Kept(WireModel):
    """Part of a conversation that the client keeps and sends again. Other fields than these are
    ignored: they are a server's, which added them to its answer, or the client's own notes."""

    model_config = ConfigDict(extra="ignore")


class FunctionCall(_Kept):
    name: str = Field(max_length=256)
    arguments: str = "{}"


class ToolCallPart(_Kept):
    id: str = Field(min_length=1, max_length=256)
    type: Literal["function"] = "function"
    function: FunctionCall
    extra_content: JsonObject | None = None
    """What the endpoint added to the call and wants back with it."""


class ChatMessage(_Kept):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    name: str | None = Field(default=None, min_length=1, max_length=64)
    tool_calls: list[ToolCallPart] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: JsonValue = None
    # Parts of the conversation that no model here would get, so they are refused.
    audio: None = None
    images: None = None
    function_call: None = None
    # In some APIs, these ask the model to continue this message.
    prefix: Literal[False] | None = None
    partial: Literal[False] | None = None

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise field_error("tool_calls", f"a message of role {self.role!r} has none")
        if self.role == "tool" and not self.tool_call_id:
            raise field_error("tool_call_id", "a message of role 'tool' needs it")
        if self.content in (None, []) and self.role in ("system", "developer", "user", "tool"):
            raise field_error("content", f"a message of role {self.role!r} needs it")
        return self


def check_tool_messages(messages: Sequence[ChatMessage]) -> None:
    """Check that each message of a tool answers an earlier call. Raises PydanticCustomError."""
    call_ids: set[str] = set()
    for position, message in enumerate(messages):
        call_ids.update(call.id for call in message.tool_calls or ())
        if message.role == "tool" and message.tool_call_id not in call_ids:
            raise field_error(
                f"messages[{position}].tool_call_id",
                f"no message before has the tool call {message.tool_call_id!r}",
            )


class Function(WireModel):
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(WireModel):
    type: Literal["function"]
    function: Function
    cache_control: JsonValue = None


class NamedFunction(WireModel):
    name: str


class NamedTool(WireModel):
    type: Literal["function"]
    function: NamedFunction


class AllowedTools(WireModel):
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1, max_length=MAX_TOOLS)


class AllowedToolsChoice(WireModel):
    """Choice among some of the tools. The full list stays unchanged, to keep the prompt cache
    valid."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoiceObject = Annotated[
    Annotated[NamedTool, Tag("<function>")] | Annotated[AllowedToolsChoice, Tag("<allowed_tools>")],
    Discriminator(type_tag),
]


class JsonSchemaFormat(WireModel):
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextFormat(WireModel):
    type: Literal["text"]


class JsonObjectFormat(WireModel):
    type: Literal["json_object"]


class SchemaFormat(WireModel):
    type: Literal["json_schema"]
    json_schema: JsonSchemaFormat


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag("<text>")]
    | Annotated[JsonObjectFormat, Tag("<json_object>")]
    | Annotated[SchemaFormat, Tag("<json_schema>")],
    Discriminator(
        type_tag,
        custom_error_type="unknown_format",
        custom_error_message="it needs the type 'text', 'json_object' or 'json_schema'",
    ),
]


class StreamOptions(WireModel):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


_CHOICES = frozenset(
    {
        "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs", "n", "seed", "stop",
        "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "frequency_penalty",
        "presence_penalty", "reasoning_effort", "verbosity", "chat_template_kwargs",
    }
)  # fmt: skip
"""Fields that become generation options."""


class ChatRequest(WireModel):
    """Body of a request. An unknown field is refused by name, so that no field that would change
    the answer is ignored."""

    model: str = Field(min_length=1, max_length=256)
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    tools: list[Tool] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: Literal["auto", "none", "required"] | ToolChoiceObject | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    n: Annotated[int, Field(ge=1, le=64)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=131_072)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=131_072)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """Number of most likely tokens to sample from, as in vLLM, SGLang and llama-server; 0 and -1
    turn this off."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    reasoning_effort: Effort | None = None
    verbosity: Verbosity | None = None
    chat_template_kwargs: TemplateOptions | None = None
    """Switches of the model's chat template, as in vLLM, SGLang and llama-server."""
    return_token_ids: bool | None = None
    """Whether to return the token ids of prompt and output for training, as in vLLM."""
    metadata: dict[str, str] | None = Field(default=None, max_length=16)
    """Tags of the run."""
    # Fields that identify the caller, or options that our server lacks; none changes an answer.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: JsonValue = None
    service_tier: str | None = None
    store: bool | None = None
    # OpenAI's defaults, which clients send; any other value is refused.
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = None

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        check_tool_messages(self.messages)
        names = [tool.function.name for tool in self.tools or ()]
        check_tool_names(names, self._chosen_names(), must_call=self.tool_choice == "required")
        if self.top_logprobs and not self.logprobs:
            raise field_error("top_logprobs", "it needs 'logprobs'")
        return self

    def _chosen_names(self) -> tuple[str, ...]:
        """Return the names of the tools in `tool_choice`."""
        match self.tool_choice:
            case NamedTool(function=function):
                return (function.name,)
            case AllowedToolsChoice(allowed_tools=allowed):
                return tuple(tool.function.name for tool in allowed.tools)
            case _:
                return ()

    @property
    def offered_tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered to the model."""
        tools = tuple(tool_spec(tool.function) for tool in self.tools or ())
        if isinstance(self.tool_choice, AllowedToolsChoice):
            return tuple(tool for tool in tools if tool.name in self._chosen_names())
        return tools

    @property
    def conversation(self) -> tuple[Message, ...]:
        """Raises `ApiError` for a part that no model here accepts."""
        return tuple(
            message_of(message, f"messages[{index}].content")
            for index, message in enumerate(self.messages)
        )

    @property
    def options(self) -> ChatOptions:
        """Options of the workflow `chat`."""
        if not self.tools and self.response_format is None:
            return NO_OPTIONS
        return ChatOptions(
            tools=self.offered_tools,
            json_schema=self._schema(),
        )

    @property
    def generation(self) -> GenerationOptions:
        """Return the sampling options for a model or a team."""
        if self.model_fields_set.isdisjoint(_CHOICES):
            return NOTHING_CHOSEN
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        limits = [limit for limit in (self.max_completion_tokens, self.max_tokens) if limit]
        return GenerationOptions(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=None if self.top_k is None else max(self.top_k, 0),
            max_tokens=min(limits) if limits else None,
            stop=tuple(stop) if stop is not None else None,
            seed=self.seed,
            n=self.n or 1,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            reasoning_effort=self.reasoning_effort,
            verbosity=chosen_verbosity(self.verbosity),
            template_options=self.chat_template_kwargs or {},
            tool_choice=_tool_choice(self.tool_choice),
            parallel_tool_calls=self.parallel_tool_calls is not False,
            token_texts=bool(self.logprobs),
            top_logprobs=self.top_logprobs or 0,
        )

    def _schema(self) -> JsonObject | None:
        match self.response_format:
            case JsonObjectFormat():
                return ANY_JSON_OBJECT
            case SchemaFormat(json_schema=JsonSchemaFormat(schema_=schema, description=text)):
                return described_schema(schema if schema is not None else {}, text)
            case _:
                return None


def check_tool_names(names: Sequence[str], choice: Sequence[str], *, must_call: bool) -> None:
    """Raises `PydanticCustomError` for two tools with one name, for a choice of an unknown tool,
    and for a required call without tools."""
    if len(set(names)) < len(names):
        raise field_error("tools", "two of them have one name")
    for name in choice:
        if name not in names:
            raise field_error("tool_choice", f"{name!r} is not one of the tools")
    if must_call and not names:
        raise field_error("tool_choice", "'required' needs tools")


def described_schema(schema: JsonObject, description: str | None) -> JsonObject:
    """Return the schema with the format's description, by which a model knows what the format is
    for. The schema's own description has precedence."""
    return {"description": description, **schema} if description else schema


def chosen_verbosity(verbosity: Verbosity | None) -> Verbosity | None:
    """Return the verbosity unless it is OpenAI's default, which clients send to any model."""
    return None if verbosity == "medium" else verbosity


def _tool_choice(choice: str | NamedTool | AllowedToolsChoice | None) -> ToolChoice:
    match choice:
        case NamedTool(function=function):
            return ToolChoice(mode="required", name=function.name)
        case AllowedToolsChoice(allowed_tools=AllowedTools(mode=mode)):
            return ToolChoice(mode=mode)
        case "none":
            return ToolChoice(mode="none")
        case "required":
            return ToolChoice(mode="required")
        case _:
            return ToolChoice()


def tool_spec(function: Function) -> ToolSpec:
    return ToolSpec(
        name=function.name,
        description=function.description or "",
        parameters=function.parameters or {"type": "object", "properties": {}},
        strict=function.strict,
    )


def message_of(message: ChatMessage, where: str) -> Message:
    """Return the record of one message. Raises `ApiError` for a part that no model here accepts."""
    content = message.content or message.refusal
    fields: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "tool_calls": tuple(_tool_call(call) for call in message.tool_calls or ()),
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "thought": _thought(message),
    }
    if content is None or isinstance(content, str):
        return Message(content=content or "", **fields)
    return user_message(_parts(content, where), where, **fields)


def _thought(message: ChatMessage) -> str:
    thought = message.reasoning_content or message.reasoning
    return thought if isinstance(thought, str) else ""


def _parts(content: Sequence[Part], where: str) -> list[ContentPart]:
    parts: list[ContentPart] = []
    for index, part in enumerate(content):
        match part:
            case TextPart():
                parts.append(ContentPart(type="text", text=part.text))
            case RefusalPart():
                parts.append(ContentPart(type="text", text=part.refusal))
            case ImagePart(image_url=image):
                parts.append(image_part(image.url, image.detail, f"{where}[{index}].image_url.url"))
            case OtherPart():
                raise invalid(
                    f"content of type {part.type[:64]!r}: the models here take text and images",
                    f"{where}[{index}]",
                    "unsupported_value",
                )
    return parts


def _tool_call(call: ToolCallPart) -> ToolCall:
    arguments, error = parse_arguments(call.function.arguments or "{}")
    return ToolCall(
        id=call.id,
        name=call.function.name,
        arguments=arguments,
        raw_arguments=call.function.arguments,
        error=error,
        extra_content=call.extra_content,
    )

"""The body of `POST /v1/responses`, in the format of OpenAI's API and Open Responses.

Its items are in `responses_items`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)

from loopline.agents.records import (
    ANY_JSON_OBJECT,
    MAX_TOOLS,
    Effort,
    GenerationOptions,
    JsonObject,
    ToolChoice,
    ToolSpec,
    Verbosity,
)
from loopline.agents.roles.chat import ChatOptions
from loopline.runtime.gateway.chat_request import (
    JsonObjectFormat,
    TextFormat,
    check_tool_names,
    chosen_verbosity,
    described_schema,
)
from loopline.runtime.gateway.errors import field_error
from loopline.runtime.gateway.responses_tools import (
    AllowedToolsChoice,
    Choice,
    DeclaredTools,
    Name,
    Tool,
    ToolForm,
    ToolName,
    as_functions,
)
from loopline.runtime.gateway.wire_model import WireModel

Label = Annotated[str, Field(max_length=512)]
Input = Annotated[str, Field(min_length=1)] | Annotated[list[Any], Field(min_length=1)]
"""Input of a request: a text or items."""


class JsonSchemaOutput(WireModel):
    type: Literal["json_schema"]
    name: Name
    description: str | None = None
    schema_: JsonObject = Field(alias="schema")
    strict: bool | None = None


TextOutput = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaOutput,
    Field(discriminator="type"),
]


class TextConfig(WireModel):
    format: TextOutput | None = None
    verbosity: Verbosity | None = None


class ReasoningConfig(WireModel):
    """Options for thoughts. Thoughts are returned whole, never summarised."""

    effort: Effort | None = None
    summary: Literal["auto", "detailed"] | None = None
    generate_summary: Literal["auto", "detailed"] | None = None


class EventOptions(WireModel):
    include_obfuscation: bool | None = None


class ResponseRecord(BaseModel):
    """Record of a request that the run keeps as a JSON tag, in addition to the run's own fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    previous_response_id: str | None = None
    has_instructions: bool = False
    """Whether the conversation's first message is this request's `instructions`."""
    store: bool = True
    background: bool = False
    tool_choice: Choice = "auto"
    tool_forms: dict[str, ToolForm] = Field(default_factory=dict)
    """Forms of tools that are not just functions: see `DeclaredTools`."""
    namespaces: dict[str, str] = Field(default_factory=dict)
    parallel_tool_calls: bool = True
    format: TextOutput = TextFormat(type="text")
    """Format of the text, without its schema, which the run contains."""
    logprobs: bool = False
    top_logprobs: int = 0
    verbosity: Verbosity | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    effort: str | None = None
    summary: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None


class ResponseRequest(WireModel):
    """Body of a request. An unknown field is refused by name, so that no field that would change
    the answer is ignored."""

    model: str = Field(min_length=1, max_length=256)
    input: Input
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(max_length=256)] | None = None
    tools: list[Tool] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    stream: bool | None = None
    stream_options: EventOptions | None = None
    background: bool | None = None
    store: bool | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] | None = (
        Field(default=None, max_length=16)
    )
    """Parts to include. Thoughts are returned unencrypted, so there is no encrypted part to
    include."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=131_072)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    metadata: dict[str, str] | None = Field(default=None, max_length=16)
    """Tags of the run."""
    # Fields that identify the caller, or options that our server lacks; none changes an answer.
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Label | None = None
    prompt_cache_options: JsonValue = None
    service_tier: Label | None = None
    client_metadata: JsonValue = None
    # OpenAI's defaults, which clients send; any other value is refused.
    reasoning: ReasoningConfig | None = None
    truncation: Literal["disabled"] | None = None
    max_tool_calls: None = None
    conversation: None = None
    prompt: None = None
    context_management: None = None
    moderation: None = None

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        names = [tool.name for tool in self._declared_tools.specs]
        if len(names) > MAX_TOOLS:
            raise field_error(
                "tools", f"{len(names)} with those of namespaces; at most {MAX_TOOLS}"
            )
        check_tool_names(names, self._chosen_names(), must_call=self.tool_choice == "required")
        if self.top_logprobs and not self.logprobs:
            raise field_error("top_logprobs", "include 'message.output_text.logprobs', too")
        if self.background and self.store is False:
            raise field_error("store", "a background response must be stored: set it to true")
        return self

    def _chosen_names(self) -> tuple[str, ...]:
        """Return the names of the tools in `tool_choice`."""
        match self.tool_choice:
            case ToolName(name=name):
                return (name,)
            case AllowedToolsChoice(tools=tools):
                return tuple(tool.name for tool in tools)
            case _:
                return ()

    @cached_property
    def _declared_tools(self) -> DeclaredTools:
        return as_functions(self.tools or ())

    @property
    def _offered_tools(self) -> tuple[ToolSpec, ...]:
        tools = self._declared_tools.specs
        if isinstance(self.tool_choice, AllowedToolsChoice):
            return tuple(tool for tool in tools if tool.name in self._chosen_names())
        return tools

    @property
    def format(self) -> TextFormat | JsonObjectFormat | JsonSchemaOutput:
        return (self.text and self.text.format) or TextFormat(type="text")

    @property
    def logprobs(self) -> bool:
        return "message.output_text.logprobs" in (self.include or ())

    @property
    def options(self) -> ChatOptions:
        """Options of the workflow `chat`."""
        return ChatOptions(
            tools=self._offered_tools,
            json_schema=self._schema(),
        )

    @property
    def generation(self) -> GenerationOptions:
        """Return the sampling options for a model or a team."""
        return GenerationOptions(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_output_tokens,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            reasoning_effort=self.reasoning and self.reasoning.effort,
            tool_choice=self._tool_choice(),
            parallel_tool_calls=self.parallel_tool_calls is not False,
            verbosity=self.text and chosen_verbosity(self.text.verbosity),
            token_texts=self.logprobs,
            top_logprobs=self.top_logprobs or 0,
        )

    @property
    def record(self) -> ResponseRecord:
        output = self.format
        if isinstance(output, JsonSchemaOutput):
            output = output.model_copy(update={"schema_": {}})
        return ResponseRecord(
            previous_response_id=self.previous_response_id,
            has_instructions=bool(self.instructions),
            store=self.store is not False,
            background=bool(self.background),
            tool_choice=self.tool_choice or "auto",
            tool_forms=self._declared_tools.forms,
            namespaces=self._declared_tools.namespaces,
            parallel_tool_calls=self.parallel_tool_calls is not False,
            format=output,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs or 0,
            verbosity=self.text and self.text.verbosity,
            max_output_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            effort=self.reasoning and self.reasoning.effort,
            summary=self.reasoning and (self.reasoning.summary or self.reasoning.generate_summary),
            user=self.user,
            safety_identifier=self.safety_identifier,
            prompt_cache_key=self.prompt_cache_key,
            prompt_cache_retention=self.prompt_cache_retention,
        )

    def _schema(self) -> JsonObject | None:
        match self.format:
            case JsonObjectFormat():
                return ANY_JSON_OBJECT
            case JsonSchemaOutput(schema_=schema, description=text):
                return described_schema(schema, text)
            case _:
                return None

    def _tool_choice(self) -> ToolChoice:
        match self.tool_choice:
            case ToolName(name=name):
                return ToolChoice(mode="required", name=name)
            case AllowedToolsChoice(mode=mode) | ("none" | "required" as mode):
                return ToolChoice(mode=mode)
            case _:
                return ToolChoice()

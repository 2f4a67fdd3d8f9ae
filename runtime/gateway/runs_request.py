"""Request bodies and answer objects of the native API."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from loopline.agents.records import (
    MAX_PROMPT_CHARS,
    MAX_TOOLS,
    Budget,
    Call,
    Effort,
    GenerationOptions,
    JsonObject,
    Message,
    Run,
    Step,
    Trajectory,
    Verbosity,
)
from loopline.bus import RunState
from loopline.bus.keys import MAX_WAIT_SECONDS
from loopline.runtime.client.waiting import waits_json
from loopline.runtime.gateway.chat_request import (
    MAX_MESSAGES,
    ChatMessage,
    StopText,
    check_tool_messages,
    message_of,
)
from loopline.runtime.gateway.chat_response import usage_of
from loopline.runtime.gateway.content_parts import text_only
from loopline.runtime.gateway.errors import field_error
from loopline.runtime.gateway.wire_model import WireModel

MAX_TAGS = 16


class _Body(WireModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class RunBudget(_Body):
    """Limits of one run."""

    tokens: int | None = Field(default=None, ge=1)
    """Total tokens of prompts and completions of all calls."""
    micro_dollars: int | None = Field(default=None, ge=1)
    """Millionths of a US dollar."""
    seconds: float | None = Field(default=None, gt=0, le=86_400)
    """Seconds after which the run ends with the outcome `deadline`."""


class RunGeneration(_Body):
    """Sampling of completions. Omitted fields keep the defaults of the models' pools. A field that
    the workflow can't apply is refused by name."""

    temperature: float | None = Field(default=None, ge=0, le=5)
    """Temperature of every agent; `top_p`, `top_k` and the penalties apply to every agent too."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int | None = Field(default=None, ge=1, le=131_072)
    """Maximum tokens per completion of an agent whose text may be the answer."""
    stop: list[StopText] | None = Field(default=None, max_length=16)
    """Texts before which the answer stops, for the same agents."""
    reasoning_effort: Effort | None = None
    """How much the same agents think, in the endpoint's words, such as `low`."""
    verbosity: Verbosity | None = None
    """How long the same agents' texts are."""

    @property
    def options(self) -> GenerationOptions:
        return GenerationOptions.model_validate(self.model_dump(exclude_none=True))


class CreateRun(_Body):
    """Body of `POST /v1/runs`."""

    workflow: str = Field(min_length=1, max_length=64)
    """Name of a registered workflow."""
    prompt: str | None = Field(default=None, min_length=1, max_length=MAX_PROMPT_CHARS)
    """The question. Either this or `messages`."""
    messages: list[ChatMessage] | None = Field(default=None, min_length=1, max_length=MAX_MESSAGES)
    """Conversation so far, as in `/v1/chat/completions`."""
    options: JsonObject = Field(default_factory=dict)
    """Options of the workflow."""
    tools: list[str] | None = Field(default=None, max_length=MAX_TOOLS)
    """Names of tools that the workflow's agent may call: from installed packages, the deployment's
    MCP servers and HTTP APIs, or its app. Only for workflows with the option `tools`, such as
    `agent`."""
    generation: RunGeneration = RunGeneration()
    """Sampling of the run's completions."""
    policies: dict[str, str] = Field(default_factory=dict, max_length=64)
    """Policies that override the deployment's, by role."""
    budget: RunBudget = RunBudget()
    seed: int = 0
    stream: bool = False
    """Whether to publish the models' text among the run's events."""
    tags: dict[str, str] = Field(default_factory=dict, max_length=MAX_TAGS)
    start_after: float = Field(default=0.0, ge=0, le=MAX_WAIT_SECONDS)
    """Seconds until the run starts; its time limit counts from then."""
    webhook: str | None = Field(default=None, max_length=2_048, pattern=r"^https?://")
    """URL that receives the run once it has ended, and every approval request."""

    @model_validator(mode="after")
    def _asks_once(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise field_error("prompt", "give either 'prompt' or 'messages'")
        check_tool_messages(self.messages or ())
        if self.tools is not None and "tools" in self.options:
            raise field_error("tools", "options.tools sets the same: give only one of them")
        return self

    @property
    def all_options(self) -> JsonObject:
        """Return the options including the tools, which are an option as well."""
        return self.options if self.tools is None else {**self.options, "tools": [*self.tools]}

    @property
    def conversation(self) -> tuple[Message, ...]:
        """Raises `ApiError` for a part that no workflow accepts."""
        messages = tuple(
            message_of(message, f"messages[{index}].content")
            for index, message in enumerate(self.messages or ())
        )
        if any(message.parts for message in messages):
            raise text_only("a run (POST /v1/responses takes images)", "messages")
        return messages

    def run_budget(self, seconds: float) -> Budget:
        """Return the run's limits, with `seconds` as the default time limit."""
        return Budget(
            tokens=self.budget.tokens,
            micro_dollars=self.budget.micro_dollars,
            seconds=self.budget.seconds or seconds,
        )


class ForkRun(_Body):
    """Body of `POST /v1/runs/{id}/fork`."""

    at_turn: int = Field(ge=0)
    """First turn that is repeated."""
    seed: int | None = None
    question: str | None = Field(default=None, min_length=1, max_length=MAX_PROMPT_CHARS)
    """Another question, if all turns are repeated (`at_turn` 0)."""
    prompts: dict[str, str] = Field(default_factory=dict, max_length=64)
    """Texts that replace prompts from `at_turn` on, by the workflow's prompt files."""
    policies: dict[str, str] = Field(default_factory=dict, max_length=64)
    tags: dict[str, str] = Field(default_factory=dict, max_length=MAX_TAGS)


class Feedback(_Body):
    """Body of `POST /v1/runs/{id}/feedback`: a reward, or a version of one."""

    value: float = Field(allow_inf_nan=False)
    agent: str | None = Field(default=None, max_length=128)
    """Agent that earned the reward; None for the whole team."""
    turn: int | None = Field(default=None, ge=0)
    """Turn that earned the reward; None for the whole run."""
    source: str = Field(default="user", min_length=1, max_length=128)
    """Source of the reward. A later reward for the same target from the same source replaces this
    one."""
    id: str | None = Field(default=None, min_length=1, max_length=128)
    """Id of the reward; a reward that is sent again with the same id counts once."""
    comment: str = Field(default="", max_length=2_000)


class ListedRun(_Body):
    """One entry of `GET /v1/runs`."""

    object: Literal["run"] = "run"
    id: str
    workflow: str
    status: str
    """State: `active`, `waiting`, or the outcome."""
    created: float
    tags: dict[str, str]
    session: str | None


def cost_of(calls: Sequence[Call], priced: Collection[str]) -> int | None:
    """Millionths of a US dollar; None if a call's pool has no price, since the cost is then
    unknown."""
    if any(call.policy.name not in priced for call in calls):
        return None
    return sum(call.cost_micro_dollars for call in calls)


def run_body(
    run: Run, state: RunState, steps: tuple[Step, ...], priced: Collection[str]
) -> dict[str, Any]:
    """Return the object `run` with its steps and their usage. `priced`: the pools with a price."""
    calls = [call for step in steps for call in step.calls]
    return {
        "object": "run",
        "id": run.id,
        "workflow": run.workflow,
        "status": ("waiting" if state.waits else "active") if state.active else state.outcome,
        "answer": state.answer or None,
        "reason": state.reason or None,
        "created": run.created,
        "deadline": state.deadline,
        "ended": None if state.active else state.ended,
        "waits": waits_json(state.waits),
        "parent": run.parent,
        "tags": run.tags,
        "policies": run.policies,
        "usage": usage_of([call.usage for call in calls]),
        "cost_micro_dollars": cost_of(calls, priced),
        "steps": [step.model_dump(mode="json") for step in steps],
    }


def ended_body(trajectory: Trajectory, priced: Collection[str]) -> dict[str, Any]:
    """Return the body of a webhook: the run without its steps."""
    run = trajectory.run
    calls = [call for step in trajectory.steps for call in step.calls]
    return {
        "object": "run",
        "id": run.id,
        "workflow": run.workflow,
        "status": str(trajectory.outcome),
        "answer": trajectory.answer,
        "reason": trajectory.reason,
        "created": run.created,
        "ended": trajectory.ended,
        "tags": run.tags,
        "usage": usage_of([call.usage for call in calls]),
        "cost_micro_dollars": cost_of(calls, priced),
    }

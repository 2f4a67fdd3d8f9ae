"""The records that all parts share: journal, store, trainers, bench and viewer.

All models are frozen. Records on the bus or in the store may have been written by another version
of this program: such a record (`StoredRecord`) keeps the fields that this version does not know,
even when it is written again, so a program in between removes nothing. All other records refuse
unknown fields as typos. `RECORDS_VERSION` is incremented when a field changes its meaning;
`read_run` and similar functions (`loopline.agents.versions`) read records of other versions.

A reference answer never appears here: only programs that verify outcomes have it. One environment
is an exception: a generated word problem has its equations in the task's instance; only the roles
that use them for scoring read them, and no observation shows them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from loopline.agents.message_parts import Parts
from loopline.agents.template_options import TemplateOptions
from loopline.agents.thinking import split_thoughts

RECORDS_VERSION = 1

MAX_PROMPT_CHARS = 200_000
"""Maximum number of characters of a question; a longer one is refused at admission. Ten times the
longest question of the data sets here."""

RUN_ID = r"^[0-9a-f-]{36}$"

JsonObject = dict[str, JsonValue]


class Record(BaseModel):
    """Base class of all records: immutable, strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StoredRecord(Record):
    """Base class of records that other versions' processes write and read: keeps unknown fields."""

    model_config = ConfigDict(frozen=True, extra="allow")


class ToolCall(StoredRecord):
    """A call that a model asks for. `arguments` is the parsed object, or `None` with `error` set if
    the model wrote something other than a JSON object."""

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = ""
    error: str | None = None
    extra_content: JsonObject | None = Field(default=None, exclude_if=lambda value: value is None)
    """What the endpoint added to the call and wants back with it, such as Gemini's signature."""


class Message(StoredRecord):
    """A chat message, in the format of OpenAI-compatible endpoints."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    """Name of the speaker, among several participants with one role."""
    raw_text: str | None = None
    """An assistant turn exactly as a local model wrote it, including the markup of calls. Engines
    with a chat template use it instead of `content`: earlier ids are extended, not tokenized
    again."""
    thought: str = Field(default="", exclude_if=lambda value: not value)
    """Thoughts before an assistant's turn that are not in its text."""
    parts: Parts = ()
    """All parts of the message in order, if a user's message contains images; then `content` is its
    text."""


class Task(StoredRecord):
    """A task with everything needed to rebuild it, except its answer."""

    environment: str = Field(default="question", max_length=256)
    """Name of the environment, or the `package.module:OBJECT` that specified it."""
    instance: JsonObject = Field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    """The whole conversation as the caller wrote it, including system messages and `prompt`; empty
    if there is only the question."""
    prompt: str = Field(max_length=MAX_PROMPT_CHARS)
    """The question; in a conversation, the last user message, or empty if there is none."""

    @field_validator("prompt")
    @classmethod
    def _asks_something(cls, prompt: str, info: ValidationInfo) -> str:
        if not prompt and not info.data.get("messages"):
            raise PydanticCustomError("string_too_short", "there is neither prompt nor messages")
        return prompt


class Budget(StoredRecord):
    """Limits of a run. `None` means no limit on that dimension."""

    tokens: int | None = Field(default=None, ge=1)
    micro_dollars: int | None = Field(default=None, ge=1)
    seconds: float = Field(default=600.0, gt=0, le=86_400)


MAX_TOOLS = 128
"""Maximum number of tools that a task, or a source of tools, offers."""


class ToolSpec(StoredRecord):
    """A tool in the form in which it is offered to a model: `parameters` is a JSON schema
    object."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str
    parameters: JsonObject
    strict: bool | None = Field(default=None, exclude_if=lambda value: value is None)
    """Whether an endpoint must hold the arguments of a call to the schema; None leaves that to the
    endpoint. Models on this machine do it as their pool's `constrain_tools` says."""


Effort = Annotated[str, Field(pattern=r"^[a-z]{1,16}$")]
"""How much a model thinks, in its endpoint's words, such as `none`, `low` or `high`."""
Verbosity = Literal["low", "medium", "high"]
"""How long a model's answers are, in OpenAI's words."""
ANY_JSON_OBJECT: JsonObject = {"type": "object"}
"""Schema of any JSON object: what APIs call JSON mode."""


class SamplingParams(StoredRecord):
    """How to sample. The default is greedy with full support."""

    temperature: float = Field(default=0.0, ge=0.0, le=5.0)
    endpoint_temperature: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether `temperature` is only a guess, as the endpoint applied its own, unknown one."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0)
    """Number of most likely tokens to sample from; 0 turns this off."""
    max_tokens: int = Field(default=512, ge=1, le=131_072)
    stop: tuple[str, ...] = ()
    seed: int | None = None
    n: int = Field(default=1, ge=1, le=64)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    # None: the model's default.
    reasoning_effort: Effort | None = Field(default=None, exclude_if=lambda value: value is None)
    verbosity: Verbosity | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def penalizes(self) -> bool:
        """Whether tokens that were generated before become more, or less, likely than in the
        model's own distribution."""
        return self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


class ToolChoice(StoredRecord):
    """Whether the model must call a tool, may call one, or must not."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    """Name of the tool that the model must call; used with `required`."""


class GenerationOptions(StoredRecord):
    """A caller's options for a completion. None: the pool's default."""

    temperature: float | None = Field(default=None, ge=0.0, le=5.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    top_k: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1, le=131_072)
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    n: int = Field(default=1, ge=1, le=64)
    frequency_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    presence_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    reasoning_effort: Effort | None = None
    verbosity: Verbosity | None = None
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    token_texts: bool = False
    """Also return the text of each output token (`Call.tokens`)."""
    top_logprobs: int = Field(default=0, ge=0, le=20)
    """Also return this many of the most likely tokens at each position (`Call.top_logprobs`)."""
    template_options: TemplateOptions = Field(default_factory=dict)
    """Switches of the model's chat template, such as `enable_thinking`; they override the
    pool's."""
    agents: dict[str, GenerationOptions] = Field(default_factory=dict)
    """Options for individual agents' completions, which override the other options."""
    endpoint_defaults: bool = False
    """Leave the temperature and the length to the endpoint unless somebody has chosen them."""

    @property
    def chosen(self) -> JsonObject:
        """Options that are explicitly set."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def sampling(self, defaults: SamplingParams) -> SamplingParams:
        """The pool's defaults, overridden by the caller's options."""
        names = self.model_fields_set & SamplingParams.model_fields.keys()
        if not names:
            return defaults
        values = {name: value for name in names if (value := getattr(self, name)) is not None}
        values["n"] = max(self.n, defaults.n)
        if self.temperature is not None:
            values["endpoint_temperature"] = False
        return defaults.model_copy(update=values)


NOTHING_CHOSEN = GenerationOptions()
"""All options are left to the pool."""


class Run(StoredRecord):
    """One admitted run of a workflow."""

    version: int = RECORDS_VERSION
    id: str = Field(pattern=RUN_ID)
    """UUIDv7: sorts by admission time."""
    task: Task
    workflow: str = Field(max_length=64)
    options: JsonObject = Field(default_factory=dict)
    """Options of the workflow (for example `calculator: false`)."""
    policies: dict[str, str]
    """Role → policy (model pool) that serves its completions."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Prompt file → content hash, as resolved at admission."""
    prompt_files: dict[str, str] = Field(default_factory=dict)
    """Prompt file → its whole content, for files that replace shipped ones."""
    role_versions: dict[str, int] = Field(default_factory=dict)
    """Role → version at admission. Empty, from an older client: any version may execute it."""
    workflow_version: int = 0
    """Version of the workflow at admission; 0, from an older client: any version may route it."""
    generation: GenerationOptions | None = None
    """The caller's completion options (`loopline.agents.generation` defines which completions they
    affect)."""
    seed: int = 0
    budget: Budget = Field(default_factory=Budget)
    created: float
    """Admission time in Unix seconds."""
    deadline: float
    """Deadline in Unix seconds; after it, the run ends with outcome `deadline`."""
    stream: bool = False
    """Publish the models' text in the run's log while it is generated."""
    tags: dict[str, str] = Field(default_factory=dict)
    parent: str | None = None
    """The run that this run was forked from."""
    webhook: str | None = Field(default=None, max_length=2_048)
    """URL that is notified when the run has ended."""
    account: str = Field(default="", max_length=64)
    """Account whose daily budget the run's calls are charged to; empty for none."""


class Usage(StoredRecord):
    """Tokens of one completion. `source` states who counted them."""

    prompt: int = Field(ge=0)
    cached: int = Field(default=0, ge=0)
    """Part of `prompt` that was read from a cache."""
    completion: int = Field(ge=0)
    reasoning: int = Field(default=0, ge=0)
    """Part of `completion` that is thought."""
    source: Literal["provider", "engine", "tokenizer"]


class Latency(StoredRecord):
    """Seconds of one completion, by phase."""

    queue: float = Field(default=0.0, ge=0)
    first_token: float = Field(default=0.0, ge=0)
    """Seconds from the start of work to the first token (prefill)."""
    decode: float = Field(default=0.0, ge=0)

    @property
    def total(self) -> float:
        return self.queue + self.first_token + self.decode


class PolicyRef(StoredRecord):
    """Weights that answered a request."""

    name: str
    """The pool, for example `llm`."""
    base: str
    """Model name or path without machine-specific folders."""
    adapter: str | None = None
    version: int = 0


FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "cancelled"]


class Call(StoredRecord):
    """One completion, the unit of the ledger: every paid completion is one `Call`."""

    id: str
    """Idempotency key of the request."""
    policy: PolicyRef
    text: str
    """Whole text of the model: for a local model the text of `output_ids`, including thoughts and
    the markup of calls. Code that parses an answer from it uses `said`."""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    """The model's thoughts, if an endpoint returned them in a separate field."""
    begins_in_thought: bool = False
    """Whether the prompt ended within a thought that the chat template had opened."""
    prompt_ids: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Natural log-probability of each output token under the distribution it was sampled from, that
    is, after temperature, any filter and a grammar's mask; one for each of `output_ids`."""
    raw_logprobs: tuple[float, ...] = ()
    """The same under the model's own distribution: the softmax of its raw logits. Empty if the
    engine does not know it."""
    tokens: tuple[str, ...] = ()
    """Text of each output token, if the caller requested it. Bytes that are not valid UTF-8 on
    their own are U+FFFD."""
    reported_logprobs: tuple[float, ...] = ()
    """Natural log-probability of each of `tokens` as an endpoint reported it, if nothing states
    under which distribution: for the caller to read, not to train on."""
    top_logprobs: tuple[tuple[tuple[str, float], ...], ...] = ()
    """Most likely tokens at the position of each output token, if the caller requested them: text
    and natural log-probability, most likely first."""
    sampling: SamplingParams
    finish_reason: FinishReason
    grammar_masked: bool = False
    usage: Usage
    cost_micro_dollars: int = Field(ge=0)
    latency: Latency = Field(default_factory=Latency)
    trainable: bool
    """False when the endpoint gave no ids or logprobs: `ids` are then empty."""
    worker: str = ""
    """Worker that served the call, if that is a separate process."""
    answered_at: float | None = None
    """Time when the answer was complete, in Unix seconds, if a worker served it."""
    extends_previous: bool = False
    """True if `prompt_ids` start with the ids of an earlier call of the same conversation."""

    @property
    def said(self) -> str:
        """The text without the model's thoughts; empty if there is nothing else."""
        return split_thoughts(self.text, opened=self.begins_in_thought).visible

    @property
    def thought(self) -> str:
        """The model's thoughts, whichever field contains them."""
        inner = split_thoughts(self.text, opened=self.begins_in_thought).thought
        return "\n\n".join(filter(None, (self.reasoning, inner)))


class Candidate(StoredRecord):
    """One of K proposals for a step."""

    calls: tuple[Call, ...] = ()
    action: JsonObject = Field(default_factory=dict)
    reward_parts: dict[str, float] = Field(default_factory=dict)


class Decision(StoredRecord):
    """A role's decision. The workflow routes on `kind`."""

    kind: str
    data: JsonObject = Field(default_factory=dict)


class RequestTiming(StoredRecord):
    """One request of a step to a worker that answers it. A step that is repeated finds stored
    answers, which take no time."""

    number: int = Field(ge=0)
    """Number among the step's requests, from 0."""
    kind: Literal["completion", "tool"]
    name: str
    """Name of the policy, or of the tool."""
    started: float
    """Start time in Unix seconds."""
    ended: float
    error: str = ""
    """Kind of the failure, if the request failed."""


class StepTimings(StoredRecord):
    """Unix times and durations of one step, in seconds."""

    started: float
    ended: float
    waited: float = 0.0
    """Seconds between publication and the start of work."""
    retries: int = Field(default=0, ge=0)
    """Failed attempts before this one."""
    deliveries: int = Field(default=1, ge=1)
    """Number of deliveries of the message to a worker; above one, the step was taken over."""
    requests: tuple[RequestTiming, ...] = ()
    """Requests of the step; empty if the models run in the same process."""


class Approval(StoredRecord):
    """Decision about a call or an answer that needed approval."""

    request: str
    """Name of the call or answer within its run."""
    name: str
    """Name of the tool; for an answer, the agent."""
    digest: str
    """SHA-256 of exactly what was approved or denied (`loopline.agents.approvals.digest_of`)."""
    decision: Literal["approved", "denied", "expired"]
    """`expired`: no decision in time."""
    at: float
    """Time of the decision, in Unix seconds."""
    by: str = ""
    reason: str = ""


class Step(StoredRecord):
    """One committed step of a run's journal."""

    run_id: str
    turn: int = Field(ge=0)
    branch: int = Field(default=0, ge=0)
    """Index of the branch within the turn's fan-out that this step answered."""
    agent: str
    input: JsonObject = Field(default_factory=dict)
    """The payload that was handed over to the agent."""
    candidates: tuple[Candidate, ...] = ()
    selected: int = 0
    decision: Decision
    observation: JsonObject = Field(default_factory=dict)
    """Results of tools during the step."""
    timings: StepTimings
    worker: str
    approvals: tuple[Approval, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every completion of the step, whether selected or not."""
        return tuple(call for candidate in self.candidates for call in candidate.calls)


class Outcome(StrEnum):
    """How a run ended. A run without a verifier ends `answered`; a program that has the reference
    changes that to `solved` or `failed`."""

    ANSWERED = "answered"
    SOLVED = "solved"
    FAILED = "failed"
    GAVE_UP = "gave_up"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    BUDGET = "budget"
    ERROR = "error"


class Trajectory(StoredRecord):
    """A complete ended run."""

    version: int = RECORDS_VERSION
    run: Run
    steps: tuple[Step, ...]
    outcome: Outcome
    answer: str | None = None
    reason: str | None = None
    """Reason for the outcome, for all outcomes except `answered` and `solved`."""
    ended: float
    team_reward: float | None = None
    """The workflow's reward for the run (`loopline.agents.workflows.add_rewards`); None if it
    assigns none."""
    agent_rewards: dict[str, float] = Field(default_factory=dict)
    """The workflow's reward for each role, assigned with the team's reward."""

    @classmethod
    def from_texts(
        cls,
        run: str | bytes | Run,
        steps: tuple[Step, ...],
        outcome: str,
        answer: str,
        reason: str,
        ended: float,
    ) -> Self:
        """An ended run built from the bus's data, before its workflow's rewards: an empty text
        stands for none. Raises ValidationError, or ValueError for an unknown outcome."""
        return cls(
            run=run if isinstance(run, Run) else Run.model_validate_json(run),
            steps=steps,
            outcome=Outcome(outcome),
            answer=answer or None,
            reason=reason or None,
            ended=ended,
        )

"""Payloads: the data that one role hands to the next. They are small: data in the journal is read
from there, not sent again.

A package adds a payload as a frozen subclass of `Payload` with the decorator `payload_type`, in the
module of the role or workflow that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field, JsonValue, ValidationError

from loopline.agents.errors import UnexpectedPayload, UnknownName, VersionMismatch
from loopline.agents.records import JsonObject, Record, Run, StoredRecord

MAX_PROBLEM_CHARS = 8_000
"""Maximum number of characters of a sub-problem; ten times the longest question of the word-problem
data sets."""

MAX_PARALLEL = 16
"""Maximum number of sub-problems that may be handed over at once."""

ExpectedType = Literal["text", "integer", "number", "boolean", "date", "list", "json"]
"""Answer types that the planner can request; `loopline.agents.typed_answers` parses them."""


Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class Payload(StoredRecord):
    """Base class of all hand-overs.

    A new field increments `type_version`. If it is optional and a reader may ignore it,
    `readable_from` stays at the previous version: then workers of both versions accept each other's
    messages. If not, older workers hand the messages back, and `upcasts` converts a payload of the
    previous version to this one.
    """

    type_name: ClassVar[str]
    type_version: ClassVar[int] = 1
    readable_from: ClassVar[int] = 0
    """Oldest version whose readers may accept this one; 0: only this version's."""
    upcasts: ClassVar[Mapping[int, Upcaster]] = {}
    """Version → function that upgrades the fields of a payload to the next version. A field with a
    default needs none if `readable_from` reaches back that far."""

    taken_by: ClassVar[str | None] = None
    """Role that acts for the agent that the payload names; None if roles are agents."""

    @property
    def acting(self) -> str | None:
        """Agent that the payload names."""
        return None

    def as_json(self) -> JsonObject:
        """The payload with its `type`, as `Step.input` records it."""
        versions: JsonObject = {}
        if self.type_version > 1:
            versions = {"type_version": self.type_version, "readable_from": self.readable_from}
        # A payload of a later version has its own among its unknown fields.
        return {"type": self.type_name, **versions, **self.model_dump(mode="json")}


P = TypeVar("P", bound=Payload)
_TYPES: dict[str, type[Payload]] = {}


def payload_type(cls: type[P]) -> type[P]:
    """Register a payload under its `type_name`."""
    if _TYPES.setdefault(cls.type_name, cls) is not cls:
        raise TypeError(f"the payload type {cls.type_name!r} is registered twice")
    return cls


def payload_types() -> dict[str, type[Payload]]:
    """Every registered payload by its name."""
    return dict(_TYPES)


def parse_payload(data: JsonObject) -> Payload:
    """Parse the output of `Payload.as_json`, including that of an earlier version, or of a later
    one that this version may read. Raises `UnknownName`, `UnexpectedPayload` or
    `VersionMismatch`."""
    name = data.get("type")
    if not isinstance(name, str) or name not in _TYPES:
        raise UnknownName("payload type", str(name), _TYPES)
    model = _TYPES[name]
    fields: dict[str, Any] = {key: value for key, value in data.items() if key != "type"}
    version, readable_from = fields.get("type_version", 1), fields.get("readable_from", 0)
    if not isinstance(version, int) or not isinstance(readable_from, int):
        raise UnexpectedPayload(f"a payload of type {name!r} has versions that are not numbers")
    if version > model.type_version:
        if not 0 < readable_from <= model.type_version:
            raise VersionMismatch(
                f"a journal has the payload {name!r} in version {version}, but this process "
                f"reads only up to {model.type_version}"
            )
    else:
        fields.pop("type_version", None)
        fields.pop("readable_from", None)
    try:
        for at in range(version, model.type_version):
            if at in model.upcasts:
                fields = model.upcasts[at](fields)
            elif not 0 < model.readable_from <= at:
                raise VersionMismatch(
                    f"no upgrade from version {at} to {model.type_version} of the payload {name!r}"
                )
        return model.model_validate(fields)
    except ValidationError as error:
        raise UnexpectedPayload(f"a payload of type {name!r} has wrong fields: {error}") from error


class Subproblem(Record):
    """One problem of a delegation, as the planner's step records it; its position in the list is
    the branch that solves it."""

    problem: str = Field(min_length=1, max_length=MAX_PROBLEM_CHARS)
    expected_type: ExpectedType
    tool_call_id: str
    position: int = Field(ge=0)
    """Index of the tool call, within the model's turn, that requested it."""


@payload_type
class QuestionPayload(Payload):
    """Start on the run's question, which the run itself contains."""

    type_name: ClassVar[str] = "question"


PLAYER = "player"
"""Role that takes the turns of all agents of environments."""


@payload_type
class TurnPayload(Payload):
    """Take an agent's turn in the run's environment; for the role `PLAYER`."""

    type_name: ClassVar[str] = "turn"
    taken_by: ClassVar[str | None] = PLAYER

    agent: str = Field(min_length=1, max_length=64)

    @property
    def acting(self) -> str:
        return self.agent


AGENT = "agent"
"""Role that takes the turns of all agents that a run itself describes."""
ACTING_ROLES = (PLAYER, AGENT)
"""Roles that act for agents with other names."""


@payload_type
class PartPayload(Payload):
    """Take the turn of one part of the run's team (`loopline.agents.team_parts`); for the role
    `AGENT`."""

    type_name: ClassVar[str] = "part"
    taken_by: ClassVar[str | None] = AGENT

    agent: str = Field(min_length=1, max_length=64)
    act: Literal["answer", "scatter", "gather"] = "answer"
    """What the part does: an agent answers; a `parallel` starts its parts (`scatter`) and combines
    their answers (`gather`)."""
    path: tuple[int, ...] = ()
    """Path of the part in the team: its index in each enclosing part, outermost first."""
    rounds: tuple[int, ...] = ()
    """Round of each enclosing loop, from 0, outermost first."""

    @property
    def acting(self) -> str:
        return self.agent


@payload_type
class SubtaskPayload(Payload):
    """Solve one sub-problem of the delegation made in turn `asked_turn`."""

    type_name: ClassVar[str] = "subtask"

    problem: str = Field(min_length=1, max_length=MAX_PROBLEM_CHARS)
    expected_type: ExpectedType
    asked_turn: int = Field(ge=0)


@payload_type
class EscalationPayload(Payload):
    """Solve a sub-problem whose first answer was not accepted."""

    type_name: ClassVar[str] = "escalation"

    problem: str = Field(min_length=1, max_length=MAX_PROBLEM_CHARS)
    expected_type: ExpectedType
    asked_turn: int = Field(ge=0)
    reason: str = Field(max_length=1_000)
    """Why the first answer was not accepted."""


@payload_type
class ResumePayload(Payload):
    """Continue: every branch of the delegation of turn `asked_turn` has its answer in the
    journal."""

    type_name: ClassVar[str] = "resume"

    asked_turn: int = Field(ge=0)
    branches: int = Field(ge=1, le=MAX_PARALLEL)


class WakeUp(Record):
    """Event that ended a wait; not known yet in a hand-over that still waits."""

    kind: Literal["signalled", "expired"]
    at: float
    """Time of the event, in Unix seconds."""
    value: JsonValue = None
    """Value that the signal's sender provided."""
    id: str = ""
    """Id of the signal."""
    by: str = ""
    """Sender, if known."""


@payload_type
class SignalPayload(Payload):
    """Continue: the wait for a signal has ended."""

    type_name: ClassVar[str] = "signal"

    signal: str = Field(max_length=64)
    woken: WakeUp | None
    """Event that ended the wait; None while the run waits."""


def has_calculator(run: Run) -> bool:
    """Whether this run's models are offered `calculate`."""
    return run.options.get("calculator") is not False

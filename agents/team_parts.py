"""A team that its run describes: agents in sequence, in parallel or in a loop.

The team is data in the run's options, so the run behaves the same on every machine, and later
changes of the program that created it have no effect. A part is identified by its *path*: the
indices from the outermost part inward.

`following` determines the next part from only the path and the rounds; `visible_parts` determines
which answers of other agents an agent reads. The steps of a `parallel`'s parts use separate *lanes*
(branch numbers), so no two hand-overs of a run share turn and branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, TypeAdapter, ValidationError, model_validator

from loopline.agents.answer_schema import AnswerSchema, check_rule
from loopline.agents.approvals import DEFAULT_APPROVAL_SECONDS
from loopline.agents.errors import InvalidOptions
from loopline.agents.escalation_options import EscalationOptions
from loopline.agents.payloads import MAX_PARALLEL
from loopline.agents.records import MAX_TOOLS, GenerationOptions, JsonObject, Record, ToolSpec

MAX_INSTRUCTION_CHARS = 100_000
MAX_PARTS = 64
"""Maximum total number of parts of a team."""
MAX_DEPTH = 8
MAX_ROUNDS = 100
MAX_AGENT_COMPLETIONS = 100
DEFAULT_COMPLETIONS = 12

AgentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class AgentBehaviour(Record):
    """Instructions and permissions of an agent."""

    instructions: str = Field(default="", max_length=MAX_INSTRUCTION_CHARS)
    """System message of the agent."""
    tools: tuple[str | ToolSpec, ...] = Field(default=(), max_length=MAX_TOOLS)
    """Names of tools that the agent may call; each name is replaced by the whole tool when the run
    is admitted."""
    answer: JsonObject | None = None
    """JSON schema of the agent's answer; without a schema, the answer is any text."""
    max_completions: int = Field(default=DEFAULT_COMPLETIONS, ge=1, le=MAX_AGENT_COMPLETIONS)
    """Maximum model requests in one step: one, and one more after each round of calls."""
    generation: GenerationOptions | None = None
    """How completions are sampled; by default as the pool does."""
    escalation: EscalationOptions | None = None
    """Options that send doubtful steps to another model; by default none are sent."""
    requires_approval: bool | JsonObject = False
    """Whether a person must approve the agent's answer before it has any effect; with a JSON
    schema, only answers that match it. A denied answer is written again."""
    approval_seconds: float = Field(default=DEFAULT_APPROVAL_SECONDS, gt=0, le=31_622_400)
    """Seconds that an answer waits for approval."""

    @model_validator(mode="after")
    def _check_answer_and_generation(self) -> Self:
        if self.generation is not None and self.generation.n != 1:
            raise ValueError("an agent continues from one completion: leave out generation.n")
        try:
            if self.answer is not None:
                AnswerSchema(self.answer)
            if isinstance(self.requires_approval, dict):
                check_rule(self.requires_approval)
        except InvalidOptions as error:
            raise ValueError(str(error)) from error
        return self


class AgentPart(AgentBehaviour):
    """One agent."""

    kind: Literal["agent"] = "agent"
    name: AgentName
    model: str = Field(default="llm", min_length=1, max_length=128)
    """Policy that answers for the agent, if the run assigns none."""


class SequencePart(Record):
    """Parts one after another. Each agent reads the answers of the earlier ones; the last answer is
    the sequence's answer."""

    kind: Literal["sequence"] = "sequence"
    parts: tuple[Part, ...] = Field(min_length=1)


class ParallelPart(Record):
    """Parts in parallel. None reads the others; all answers together are the answer."""

    kind: Literal["parallel"] = "parallel"
    parts: tuple[Part, ...] = Field(min_length=1, max_length=MAX_PARALLEL)


class LoopPart(Record):
    """Parts one after another, repeated until the last part's answer meets the condition or the
    rounds are used up. The first part's last answer is the loop's answer."""

    kind: Literal["loop"] = "loop"
    parts: tuple[Part, ...] = Field(min_length=1)
    until: str | JsonObject
    """Condition that ends the loop: a text that the last part's answer contains; or fields, with
    their values, of an answer that is a JSON object."""
    max_rounds: int = Field(default=5, ge=1, le=MAX_ROUNDS)

    def is_done(self, answer: str) -> bool:
        """Whether an answer of the last part meets the condition."""
        if isinstance(self.until, str):
            return self.until in answer
        fields = _json_object(answer)
        return all(name in fields and fields[name] == value for name, value in self.until.items())


Part = Annotated[AgentPart | SequencePart | ParallelPart | LoopPart, Field(discriminator="kind")]
SequencePart.model_rebuild()
ParallelPart.model_rebuild()
LoopPart.model_rebuild()
_part: TypeAdapter[Part] = TypeAdapter(Part)


def parse_team(data: JsonValue) -> Part:
    """A team from a run's options. Raises `InvalidOptions` for an invalid team, for two agents with
    the same name, and for a team that is too large."""
    try:
        team = _part.validate_python(data)
    except (ValidationError, RecursionError) as error:
        if isinstance(error, RecursionError):
            raise InvalidOptions("the team is nested too deeply") from error
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidOptions(f"the team, at {where or 'its top'}: {first['msg']}") from error
    by_name: dict[str, AgentPart] = {}
    for count, (path, part) in enumerate(walk(team), 1):
        if len(path) > MAX_DEPTH or count > MAX_PARTS:
            raise InvalidOptions(
                f"a team has at most {MAX_PARTS} parts, nested {MAX_DEPTH} deep; split it in two"
            )
        if isinstance(part, AgentPart) and by_name.setdefault(part.name, part) != part:
            raise InvalidOptions(f"two different agents of the team are called {part.name!r}")
    return team


def team_of(options: JsonObject) -> Part:
    """The team of a run of the workflow `team`. Raises `InvalidOptions`."""
    return parse_team(options.get("team"))


def walk(team: Part, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Part]]:
    """Every part with its path, outer parts before inner ones."""
    yield path, team
    for place, part in enumerate(inner_parts(team)):
        yield from walk(part, (*path, place))


def inner_parts(part: Part) -> tuple[Part, ...]:
    return () if isinstance(part, AgentPart) else part.parts


def part_at(team: Part, path: tuple[int, ...]) -> Part:
    """The part at a path. Raises `IndexError` if the path does not exist."""
    for place in path:
        team = inner_parts(team)[place]
    return team


def agents_of_team(team: Part) -> dict[str, AgentPart]:
    """Agents of the team, by name."""
    return {part.name: part for _, part in walk(team) if isinstance(part, AgentPart)}


def with_agents(team: Part, change: dict[str, AgentPart]) -> Part:
    """The team with agents replaced by these, according to their names."""
    if isinstance(team, AgentPart):
        return change.get(team.name, team)
    parts = tuple(with_agents(part, change) for part in team.parts)
    return team.model_copy(update={"parts": parts})


def answering_agents(team: Part) -> tuple[str, ...]:
    """The agents whose answer is the team's: all of them together for a `parallel`."""
    match team:
        case AgentPart():
            return (team.name,)
        case SequencePart():
            return answering_agents(team.parts[-1])
        case LoopPart():
            return answering_agents(team.parts[0])
        case ParallelPart():
            return tuple(name for part in team.parts for name in answering_agents(part))


def answering_agent(team: Part) -> AgentPart | None:
    """The agent whose answer is the team's; None if several answers together are."""
    match team:
        case AgentPart():
            return team
        case SequencePart():
            return answering_agent(team.parts[-1])
        case LoopPart():
            return answering_agent(team.parts[0])
        case ParallelPart():
            return None


@dataclass(frozen=True, slots=True)
class Place:
    """A part, and the rounds in which it takes steps."""

    path: tuple[int, ...] = ()
    rounds: tuple[int, ...] = ()


def opening(team: Part, place: Place) -> Place:
    """The first part that takes a step when the part at `place` starts: an agent, or a
    `parallel`."""
    part = part_at(team, place.path)
    while isinstance(part, SequencePart | LoopPart):
        rounds = (*place.rounds, 0) if isinstance(part, LoopPart) else place.rounds
        place = Place((*place.path, 0), rounds)
        part = part.parts[0]
    return place


@dataclass(frozen=True, slots=True)
class BranchDone:
    """A branch of the `parallel` at this path is done."""

    path: tuple[int, ...]


def following(team: Part, place: Place, answer: str) -> Place | BranchDone | None:
    """The routing after the part at `place` has answered; None at the team's end."""
    path, rounds = place.path, place.rounds
    while path:
        path, position = path[:-1], path[-1]
        outer = part_at(team, path)
        parts = inner_parts(outer)
        if isinstance(outer, ParallelPart):
            return BranchDone(path)
        if position + 1 < len(parts):
            return opening(team, Place((*path, position + 1), rounds))
        if isinstance(outer, LoopPart):
            again = rounds[-1] + 1
            if again < outer.max_rounds and not outer.is_done(answer):
                return opening(team, Place((*path, 0), (*rounds[:-1], again)))
            rounds = rounds[:-1]
    return None


def visible_parts(team: Part, place: Place) -> list[tuple[int, ...]]:
    """Paths of the parts whose latest answers an agent reads, oldest first: the earlier parts and,
    in a loop, the result of the previous round."""
    paths: list[tuple[int, ...]] = []
    rounds = list(place.rounds)
    part = team
    for depth, position in enumerate(place.path):
        outer = place.path[:depth]
        earlier = [(*outer, number) for number in range(position)]
        if isinstance(part, LoopPart) and rounds.pop(0) > 0:
            paths += [(*outer, number) for number in range(position, len(part.parts))]
        if not isinstance(part, ParallelPart):
            paths += earlier
        part = inner_parts(part)[position]
    return paths


def width(part: Part) -> int:
    """Number of lanes that a part needs: for a `parallel`, those of all its parts and one to gather
    on."""
    widths = [width(inner) for inner in inner_parts(part)]
    if isinstance(part, ParallelPart):
        return sum(widths) + 1
    return max(widths, default=1)


def lane(team: Part, path: tuple[int, ...]) -> int:
    """The branch number on which the steps of a part start."""
    number = 0
    for position in path:
        if isinstance(team, ParallelPart):
            number += sum(width(part) for part in team.parts[:position])
        team = inner_parts(team)[position]
    return number


def gathering_lane(team: Part, path: tuple[int, ...]) -> int:
    """The branch number on which the answers of the `parallel` at `path` are combined."""
    return lane(team, path) + width(part_at(team, path)) - 1


def _json_object(text: str) -> JsonObject:
    from pydantic_core import from_json

    try:
        value = from_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

"""The five ways in which a workflow can continue after a step.

To add a workflow, write a class with the members of `Workflow` and declare an instance in your
package's `pyproject.toml` (the entry point carries the workflow's name):

    [project.entry-points."loopline.workflows"]
    debate = "my_package.debate:debate"

A workflow whose models may call the tools that a task names (`loopline.agents.tools.offered`) has
an attribute `offers_tools = True`; `runtime ask --tool` refuses any other. A workflow that assigns
rewards also has the method of `Rewarding`.

Routing is pure. It decides based only on the run and the step, and may look in the journal only for
steps that are certainly committed before this one: branches of one fan-out commit in any order, and
none sees the others. Work that must wait for all branches belongs in the continuation of a
`Fanout`.

A hand-over is identified by its turn and branch, which are unique within a run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeVar, cast, runtime_checkable

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from loopline.agents.errors import InvalidOptions, NoRoute, outcome_of_failure
from loopline.agents.payloads import Payload, SignalPayload, WakeUp
from loopline.agents.prompts import Prompt
from loopline.agents.records import JsonObject, Outcome, Run, Step, ToolSpec, Trajectory

MAX_TURNS = 24
"""Maximum number of turns of one run. A delegation takes three (small solver, expert,
continuation), so a planner gets eight steps; its conversation would outgrow most contexts long
before."""

DEFAULT_WAIT_SECONDS = 30 * 86_400.0
"""Default of a wait, in seconds; the bus allows a year."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """A message for a role's stream."""

    role: str
    turn: int
    payload: Payload
    branch: int = 0

    @property
    def agent(self) -> str:
        """Agent of a step: the one for which a role acts, else the role itself."""
        return self.payload.acting or self.role


@dataclass(frozen=True, slots=True)
class Continue:
    """Publishes these hand-overs, which are independent; one of them must lead to the run's end."""

    handoffs: tuple[Handoff, ...]


@dataclass(frozen=True, slots=True)
class Fanout:
    """Publishes these hand-overs, and the continuation once all their branches have arrived."""

    handoffs: tuple[Handoff, ...]
    join: str
    """Name of the join, unique in the run."""
    continuation: Handoff


@dataclass(frozen=True, slots=True)
class Arrive:
    """This branch of the join is done."""

    join: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Stops the run until someone sends it this signal, or `expires` seconds have passed. Then the
    role takes a step of this turn with a `SignalPayload`, which states which of the two happened. A
    waiting run occupies no worker, and its clock is stopped."""

    signal: str
    role: str
    turn: int
    branch: int = 0
    expires: float = DEFAULT_WAIT_SECONDS

    def handoff(self, woken: WakeUp | None) -> Handoff:
        """The hand-over that follows, once it is known what ended the wait."""
        return Handoff(
            self.role, self.turn, SignalPayload(signal=self.signal, woken=woken), self.branch
        )


@dataclass(frozen=True, slots=True)
class Finish:
    """Ends the run."""

    outcome: Outcome
    answer: str | None = None
    reason: str | None = None
    """Reason, for every outcome except `answered`."""


Routing = Continue | Fanout | Arrive | Wait | Finish

P = TypeVar("P")


def capability(workflow: Workflow, protocol: type[P]) -> P | None:
    """The workflow as one of the protocols below, or None if it does not implement it. Python 3.11
    checks all members of a protocol at each `isinstance`."""
    try:
        has = _implements(workflow, protocol)
    except TypeError:  # the workflow has no hash
        has = isinstance(workflow, protocol)
    return cast("P", workflow) if has else None


@lru_cache(maxsize=1024)
def _implements(workflow: Workflow, protocol: type[object]) -> bool:
    return isinstance(workflow, protocol)


@runtime_checkable
class Workflow(Protocol):
    """Roles of a workflow, and the role that is next after each decision."""

    @property
    def name(self) -> str: ...

    @property
    def roles(self) -> tuple[str, ...]:
        """Every role to which the workflow hands work."""
        ...

    @property
    def default_policies(self) -> Mapping[str, str]:
        """Default policies, for roles to which a run assigns none."""
        ...

    def check_options(self, options: JsonObject) -> JsonObject:
        """The options with their defaults. Raises `InvalidOptions`."""
        ...

    def first(self, run: Run) -> tuple[Handoff, ...]:
        """Hand-overs that admission publishes."""
        ...

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        """The routing after `step`, which is not in `journal` yet. Raises `NoRoute` for a decision
        that the workflow does not know. The decision `failed` never gets here: it ends every run
        (`loopline.agents.stepping.route_step`)."""
        ...


@runtime_checkable
class Rewarding(Protocol):
    """Optional member of a workflow: its own rewards."""

    def rewarded(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory of an ended run, with `team_reward` and `agent_rewards`. Must be pure, and
        accept every run of the workflow, even one that was cancelled or failed halfway."""
        ...


@runtime_checkable
class Playing(Protocol):
    """Optional members of a workflow: the agents of environments, whose turns the role `PLAYER`
    takes."""

    def players(self, environment: str) -> Mapping[str, str]:
        """Default policies by agent; empty if the name is not an environment. Raises
        `PluginError`."""
        ...

    def player_prompts(self, environment: str) -> tuple[Prompt, ...]:
        """The prompts of the environment's agents. Raises `PluginError`."""
        ...


@runtime_checkable
class Assembling(Protocol):
    """Optional member of a workflow: agents that a run's options describe, whose turns the role
    `AGENT` takes."""

    def agents_in(self, options: JsonObject) -> Mapping[str, str]:
        """Default policies by agent, for agents to which a run assigns none."""
        ...


@runtime_checkable
class ChoosingPrompts(Protocol):
    """Optional member of a workflow: prompts that a run's options select, in place of those that
    its roles specify."""

    def prompts_in(self, options: JsonObject) -> tuple[Prompt, ...]:
        """The selected prompts. Raises `InvalidOptions`."""
        ...


@runtime_checkable
class Answering(Protocol):
    """Optional member of a workflow: which agents speak to the caller. A workflow with a single
    role does not need this: that role does."""

    def answering(self, options: JsonObject) -> Collection[str]:
        """The agents whose text may be the run's answer."""
        ...


@runtime_checkable
class Honouring(Protocol):
    """Optional member of a workflow: the completion options that its runs' callers may set, if they
    differ from the usual ones (`loopline.agents.generation`)."""

    @property
    def honoured(self) -> frozenset[str]:
        """Fields of `GenerationOptions`."""
        ...


@runtime_checkable
class NamingTools(Protocol):
    """Optional members of a workflow: tools that a run's options name or describe."""

    def tools_in(self, options: JsonObject) -> tuple[str | ToolSpec, ...]: ...

    def with_tools(self, options: JsonObject, specs: Mapping[str, ToolSpec]) -> JsonObject:
        """The options, with tool names replaced by these specifications."""
        ...


class Options(BaseModel):
    """Base of a workflow's options, which refuses unknown ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Known = TypeVar("Known", bound=BaseModel)


def parse_options(workflow: str, model: type[Known], options: JsonObject) -> Known:
    """Parse a workflow's options. Raises `InvalidOptions` naming the option and the known ones."""
    try:
        return model.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        option_names = ", ".join(model.model_fields)
        raise InvalidOptions(
            f"option {where!r} of workflow {workflow!r}: {first['msg']} "
            f"(known options: {option_names})"
        ) from error


def finish_with_answer(step: Step) -> Finish:
    """The role's answer becomes the run's answer."""
    return Finish(Outcome.ANSWERED, answer=_text(step.decision.data.get("answer")))


def finish_without_answer(reason: str) -> Finish:
    """The run ends without an answer."""
    return Finish(Outcome.GAVE_UP, reason=reason)


def finish_given_up_by_role(step: Step) -> Finish:
    """A role gave up, and no other role can take over."""
    return finish_without_answer(f"{step.agent}: {_text(step.decision.data.get('reason'))}")


def finish_with_failure(step: Step) -> Finish:
    """A request of the step failed permanently."""
    kind = _text(step.decision.data.get("failure"))
    reason = _text(step.decision.data.get("reason"))
    return Finish(outcome_of_failure(kind), reason=f"{step.agent}: {kind}: {reason}")


def no_route_error(workflow: str, step: Step) -> NoRoute:
    """The error for a decision that a workflow does not know."""
    return NoRoute(
        f"workflow {workflow!r} does not know what follows the decision {step.decision.kind!r} "
        f"of role {step.agent!r} (turn {step.turn}, branch {step.branch})"
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""

"""The tools that a task offers, and how their calls run.

Only the task, which is fixed when its run is admitted, determines which tools may be called.
Nothing that a model writes or a tool returns can add to them.

A task of the environment `api_worlds` offers the APIs of its world. A task of `tool_step` offers
the tools that it describes, whose calls are recorded but not run. Any other task may name
registered tools in its instance: `{"tools": ["calculate", …]}`. Tools that are not registered in
any process (those of MCP servers and HTTP APIs) are included as a complete `ToolSpec`: the client
that admits a run replaces their names (`unregistered_tools`, `attach_specs`). So the run keeps the
tools as offered, even if a server later changes their descriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from loopline.agents.environments import tool_step
from loopline.agents.environments.tool_step import GivenStep
from loopline.agents.errors import InvalidTask, UnknownName
from loopline.agents.records import MAX_TOOLS, JsonObject, Task, ToolCall, ToolSpec
from loopline.agents.tools import tools
from loopline.agents.tools.declaration import check_size


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """Request to a tool worker."""

    tool: str
    arguments: JsonObject


class OfferedTools(Protocol):
    """Tools that the models of a run may call."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    def request(
        self, name: str, arguments: JsonObject, earlier: Sequence[ToolCall]
    ) -> ToolRequest | None:
        """The request that runs a call after the run's `earlier` calls; None if there is no such
        tool."""
        ...


@dataclass(frozen=True)
class Functions:
    """Registered tools, each of which manages its own state, if any."""

    specs: tuple[ToolSpec, ...]

    def request(
        self, name: str, arguments: JsonObject, earlier: Sequence[ToolCall]
    ) -> ToolRequest | None:
        if name not in (spec.name for spec in self.specs):
            return None
        return ToolRequest(name, arguments)


@dataclass(frozen=True)
class WorldApis:
    """APIs of a simulated world, which is rebuilt for every call."""

    specs: tuple[ToolSpec, ...]
    world: int

    def request(
        self, name: str, arguments: JsonObject, earlier: Sequence[ToolCall]
    ) -> ToolRequest | None:
        offered = [spec.name for spec in self.specs]
        if name not in offered:
            return None
        before: list[JsonValue] = [
            {"name": call.name, "arguments": call.arguments or {}} for call in earlier
        ]
        return ToolRequest(
            "api_world",
            {
                "world": self.world,
                "offered": [*offered],
                "earlier": before,
                "call": {"name": name, "arguments": arguments},
            },
        )


@dataclass(frozen=True)
class NotedTools:
    """Tools whose calls are only recorded."""

    specs: tuple[ToolSpec, ...]

    def request(
        self, name: str, arguments: JsonObject, earlier: Sequence[ToolCall]
    ) -> ToolRequest | None:
        if name not in (spec.name for spec in self.specs):
            return None
        return ToolRequest("noted_call", {"name": name, "arguments": arguments})


class _Instance(BaseModel):
    model_config = ConfigDict(extra="ignore")

    tools: tuple[str | ToolSpec, ...] = Field(max_length=MAX_TOOLS)


@dataclass(frozen=True, slots=True)
class DescribedTool:
    """A tool that this process knows only by its description. The process that runs it checks the
    arguments."""

    spec: ToolSpec

    @property
    def name(self) -> str:
        return self.spec.name

    def parse(self, arguments: JsonObject) -> JsonObject:
        """The arguments unchanged. Raises `InvalidArguments` if there are too many."""
        check_size(self.name, arguments)
        return arguments


@dataclass(frozen=True)
class EveryTool:
    """Tools that several sources offer together; if two have the same name, the first one."""

    offers: tuple[OfferedTools, ...]

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        by_name: dict[str, ToolSpec] = {}
        for offer in self.offers:
            for spec in offer.specs:
                by_name.setdefault(spec.name, spec)
        return tuple(by_name.values())

    @property
    def tools(self) -> tuple[DescribedTool, ...]:
        return tuple(DescribedTool(spec) for spec in self.specs)

    def request(
        self, name: str, arguments: JsonObject, earlier: Sequence[ToolCall]
    ) -> ToolRequest | None:
        requests = (offer.request(name, arguments, earlier) for offer in self.offers)
        return next((request for request in requests if request is not None), None)


def specs_of(named: Sequence[str | ToolSpec]) -> tuple[ToolSpec, ...]:
    """The tools as specifications. Raises `InvalidTask` for a name that is not registered in this
    process."""
    specs: dict[str, ToolSpec] = {}
    try:
        for entry in named:
            spec = entry if isinstance(entry, ToolSpec) else tools.get(entry).spec
            specs.setdefault(spec.name, spec)
    except UnknownName as error:
        raise InvalidTask(f"the task offers a tool that is not registered: {error}") from error
    return tuple(specs.values())


def unregistered_names(named: Sequence[str | ToolSpec]) -> tuple[str, ...]:
    """Names of the tools that nothing in this process can describe."""
    tool_names = tools.names()
    bare = [entry for entry in named if isinstance(entry, str)]
    return tuple(name for name in dict.fromkeys(bare) if name not in tool_names)


def whole_tools(
    named: Sequence[str | ToolSpec], specs: Mapping[str, ToolSpec]
) -> tuple[str | ToolSpec, ...]:
    """The tools, with names replaced by these specifications."""
    return tuple(specs.get(entry, entry) if isinstance(entry, str) else entry for entry in named)


def offered_tools(task: Task, *, otherwise: Sequence[str] = ()) -> OfferedTools:
    """Tools that a task offers; `otherwise`: the registered tools for a task that names none.

    Raises `InvalidTask` for an instance that cannot be read, or that names an unknown tool.
    """
    if task.environment == "api_worlds":
        return _world_apis(task)
    if task.environment == tool_step.ENVIRONMENT:
        return _noted_tools(task)
    named = _tools_in(task) if "tools" in task.instance else otherwise
    return Functions(specs_of(named))


def _tools_in(task: Task) -> Sequence[str | ToolSpec]:
    try:
        return _Instance.model_validate(task.instance).tools
    except ValidationError as error:
        raise InvalidTask(
            f"the task's instance must have a list of at most {MAX_TOOLS} names under 'tools': "
            f"{error.errors(include_url=False)[0]['msg']}"
        ) from error


def unregistered_tools(task: Task) -> tuple[str, ...]:
    """The tools that a task names but nothing in this process can describe.

    Raises `InvalidTask` for an instance that cannot be read.
    """
    if task.environment in ("api_worlds", tool_step.ENVIRONMENT) or "tools" not in task.instance:
        return ()
    return unregistered_names(_tools_in(task))


def attach_specs(task: Task, specs: Mapping[str, ToolSpec]) -> Task:
    """The task, with tool names replaced by these specifications."""
    whole = whole_tools(_tools_in(task), specs)
    written: list[JsonValue] = [
        entry if isinstance(entry, str) else entry.model_dump(mode="json") for entry in whole
    ]
    return task.model_copy(update={"instance": {**task.instance, "tools": written}})


def _noted_tools(task: Task) -> NotedTools:
    try:
        return NotedTools(GivenStep.model_validate(task.instance).tools)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidTask(
            f"the task's instance is not a given step: {where}: {first['msg']}"
        ) from error


def _world_apis(task: Task) -> WorldApis:
    # Sixteen domains: imported only by runs that use them.
    from loopline.agents.environments.api_worlds import APIS, Recipe

    try:
        recipe = Recipe.model_validate(task.instance)
        return WorldApis(tuple(APIS[name].spec for name in recipe.tools), recipe.world)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidTask(
            f"the task's instance is not a recipe of an API world: {where}: {first['msg']}"
        ) from error
    except KeyError as error:
        raise InvalidTask(f"the task's world offers an API that does not exist: {error}") from error

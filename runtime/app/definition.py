"""The definition of an app: its tools, its agents, and teams of them.

Everything except the tools' functions is plain data. Nothing is registered in this process, so one
process can create any number of apps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, overload

import pydantic

from loopline.agents.approvals import DEFAULT_APPROVAL_SECONDS
from loopline.agents.errors import AgentError, UnknownName
from loopline.agents.escalation_options import EscalationOptions
from loopline.agents.records import GenerationOptions, JsonObject, ToolSpec
from loopline.agents.team_parts import (
    DEFAULT_COMPLETIONS,
    AgentPart,
    LoopPart,
    ParallelPart,
    Part,
    SequencePart,
    parse_team,
    walk,
)
from loopline.agents.tools import call_tool, tools
from loopline.agents.tools.declaration import DEFAULT_TIMEOUT_SECONDS, Tool
from loopline.agents.tools.declaration import tool as declare
from loopline.agents.tools.effects import Effect, OnUnknown
from loopline.runtime.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")
AnyFunction = Callable[..., Any]


class Definition:
    """Base of `App`."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool[Any]] = {}
        """Tools by name."""
        self.agents: dict[str, AgentPart] = {}
        """Agents by name."""
        self._tool_names: dict[AnyFunction, str] = {}
        self._teams: list[Part] = []

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        effect: Effect = "once",
        on_unknown: OnUnknown = "model",
        reconcile: AnyFunction | None = None,
        requires_approval: bool | AnyFunction = False,
        approval_seconds: float = DEFAULT_APPROVAL_SECONDS,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(
        self,
        function: AnyFunction | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        effect: Effect = "once",
        on_unknown: OnUnknown = "model",
        reconcile: AnyFunction | None = None,
        requires_approval: bool | AnyFunction = False,
        approval_seconds: float = DEFAULT_APPROVAL_SECONDS,
    ) -> AnyFunction:
        """Let models call this function, which stays a normal function. It needs typed parameters
        and a docstring that tells models what it does. If it raises, the model reads `error: …`.
        `effect` is the side effect of a call: `none`, `keyed`, or `once`, which is never repeated
        (`loopline.agents.tools.effects`). A call that `requires_approval` waits at most
        `approval_seconds` for a person; to select these calls, pass a function with the tool's own
        parameters.

        Raises `InputError` if another tool has the name, `TypeError` for a function that models
        can't call.
        """

        def register(function: AnyFunction) -> AnyFunction:
            tool = declare(
                name=name,
                description=description,
                timeout_seconds=timeout_seconds,
                effect=effect,
                on_unknown=on_unknown,
                reconcile=reconcile,
                requires_approval=requires_approval,
                approval_seconds=approval_seconds,
            )(function)
            if tool.name in self.tools:
                raise InputError(f"this app has two tools called {tool.name!r}; rename one")
            self.tools[tool.name] = tool
            self._tool_names[function] = tool.name
            return function

        return register if function is None else register(function)

    def agent(
        self,
        name: str,
        *,
        instructions: str = "",
        tools: Iterable[AnyFunction | str] = (),
        model: str = "llm",
        answer: Any = None,
        max_completions: int = DEFAULT_COMPLETIONS,
        generation: GenerationOptions | None = None,
        escalation: EscalationOptions | None = None,
        requires_approval: bool | JsonObject = False,
        approval_seconds: float = DEFAULT_APPROVAL_SECONDS,
    ) -> AgentPart:
        """Define an agent of this app. `tools` are functions of this app, or names of tools that a
        package registers or that an MCP server or HTTP API of the deployment offers
        (`github__get_issue`). `model` is a pool of the deployment, or pool/adapter. `answer` is the
        type of its answer. With `escalation`, another model takes over its doubtful steps only.
        With `requires_approval`, each answer waits for a person; if it is a JSON schema, only
        answers that fit it wait.

        Raises `InputError`.
        """
        if name in self.agents:
            raise InputError(f"this app has two agents called {name!r}; rename one")
        try:
            agent = AgentPart(
                name=name,
                instructions=instructions,
                tools=tuple(self._offered(tool) for tool in tools),
                model=model,
                answer=None if answer is None else schema_of(answer),
                max_completions=max_completions,
                generation=generation,
                escalation=escalation,
                requires_approval=requires_approval,
                approval_seconds=approval_seconds,
            )
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "answer"
            raise InputError(f"agent {name!r}: {where}: {first['msg']}") from error
        self.agents[name] = agent
        return agent

    def sequence(self, *parts: Part) -> SequencePart:
        """Return a team whose agents run one after the other: each reads the previous agents'
        answers."""
        return self._team(SequencePart, parts=parts)

    def parallel(self, *parts: Part) -> ParallelPart:
        """Return a team whose agents run in parallel: none reads the others' answers, and the next
        part reads all of them."""
        return self._team(ParallelPart, parts=parts)

    def loop(
        self, *parts: Part, until: str | pydantic.BaseModel | JsonObject, max_rounds: int = 5
    ) -> LoopPart:
        """Repeat the parts in sequence until the last part's answer contains the text `until`, or
        is a JSON object with these fields. The loop's answer is the first part's last answer.

        The condition is sent along with the run, so it must be data: a function is refused.
        """
        if callable(until):
            raise InputError(
                "until= must be data, because it travels with the run: a text that the last part's "
                'answer contains, or fields of it (answer=Verdict, until={"approved": True})'
            )
        if isinstance(until, pydantic.BaseModel):
            until = until.model_dump(mode="json", exclude_unset=True)
        return self._team(LoopPart, parts=parts, until=until, max_rounds=max_rounds)

    def main(self) -> Part:
        """Return the default agent or team to ask: the only one that no other contains. Raises
        `InputError` if there are several, or none."""
        inner = [part for team in self._teams for path, part in walk(team) if path]
        outer = [part for part in (*self.agents.values(), *self._teams) if part not in inner]
        if len(outer) == 1:
            return outer[0]
        if not outer:
            raise InputError('this app has no agent: make one by app.agent("name", …)')
        names = ", ".join(part.name for part in outer if isinstance(part, AgentPart))
        raise InputError(
            f"this app has {len(outer)} agents or teams to ask; say which by agent=",
            hint=f"agents: {names or 'only those within teams'}",
        )

    def part(self, agent: Part | str | None) -> Part:
        """Return a part, given itself or its name. Raises `InputError`."""
        if agent is None:
            return self.main()
        if not isinstance(agent, str):
            return agent
        if agent not in self.agents:
            raise InputError(str(UnknownName("agent of this app called", agent, self.agents)))
        return self.agents[agent]

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """Run a tool of this app, or a registered one, as a tool worker does."""
        tool = self.tools.get(name)
        return await (tool.call(arguments) if tool else call_tool(name, arguments))

    def _offered(self, tool: AnyFunction | str) -> str | ToolSpec:
        if isinstance(tool, str):
            if tool not in self.tools:
                return tool  # a tool of the deployment, resolved at admission
            return self.tools[tool].spec
        if isinstance(tool, Tool):
            return tool.name if tool.name in tools.names() else tool.spec
        if tool not in self._tool_names:
            self.tool(tool)
        return self.tools[self._tool_names[tool]].spec

    def _team(self, kind: Any, **fields: Any) -> Any:
        try:
            team = kind(**fields)
            parse_team(team.model_dump(mode="json"))
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        except AgentError as error:
            raise InputError(str(error)) from error
        self._teams.append(team)
        return team


def schema_of(answer: Any) -> dict[str, Any]:
    """Return the JSON schema of a type; return a schema unchanged. Raises `InputError`."""
    if isinstance(answer, dict):
        return answer
    try:
        return pydantic.TypeAdapter(answer).json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise InputError(f"answer={answer!r} is not a type that JSON can hold: {error}") from error

"""Environments: an environment is an object with the rules, generator, verifier, agents and
hand-written players of a kind of puzzle.

Your own package adds one through an entry point of the group `loopline.environments`:

    [project.entry-points."loopline.environments"]
    estimate = "my_package.estimate:ESTIMATE"

Then `bench puzzles --game estimate` plays it, and `train grpo loop OUTPUT --game estimate` trains
an adapter for each agent. Without an entry point, use `--game my_package.estimate:ESTIMATE`.

For agents that speak in turn, write an environment with
`loopline.agents.environments.conversation`: an instance defines what an agent sees, a text's reward
and whether the puzzle is solved. An environment with other state needs an `Episode`
(`loopline.agents.environments.game`). If a tool agent proposes and a plan agent acts, use the
existing episode in `loopline.agents.environments.team_episode`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from pydantic import BaseModel, ValidationError

from loopline.agents.environments.game import Agent, Episode
from loopline.agents.environments.puzzle_splits import Split, as_split, take_distinct
from loopline.agents.errors import InvalidOptions, InvalidTask
from loopline.agents.prompts import Prompt, parse_prompt
from loopline.agents.records import JsonObject, Task

if TYPE_CHECKING:
    from loopline.agents.environments.lessons import AnyLessons


class Setting(Protocol):
    """How an instance is played."""

    @property
    def turns(self) -> int:
        """Maximum turns of an episode."""
        ...

    @property
    def team(self) -> tuple[Agent, ...]:
        """Agents that play, in the order of a turn; empty means all agents of the environment."""
        ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self: ...


class Difficulty(Protocol):
    """Settings of a generator: a frozen pydantic model."""

    @property
    def setting(self) -> Setting: ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self: ...


class Instance(Protocol):
    """A puzzle: a frozen pydantic model that is complete, so that a run can be rebuilt from it."""

    @property
    def id(self) -> str:
        """Id of the puzzle, independent of its setting."""
        ...

    @property
    def split(self) -> Split | None:
        """Split of the puzzle, by its content; None if no generator creates it."""
        ...

    @property
    def setting(self) -> Setting: ...

    @property
    def task(self) -> Task: ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self: ...


D = TypeVar("D", bound=Difficulty)
I = TypeVar("I", bound=Instance)  # noqa: E741
E = TypeVar("E", bound=Episode, covariant=True)
M = TypeVar("M")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True)
class AgentSpec:
    """An agent of an environment."""

    name: Agent
    prompt: Prompt | str
    """Text that precedes the agent's observation."""
    policy: str = ""
    """Default policy if a deployment specifies none; empty means the adapter of the pool `pair`
    with the agent's name."""
    program_prompt: Prompt | None = None
    """Prompt that replaces `prompt` in a team that answers by programs."""
    writes_programs: bool = False
    """Whether this agent writes the programs in such a team; a judge runs them, and other agents
    read the results."""
    proposes: bool = False
    """Whether its actions are only proposals to later agents, which change nothing if other agents
    act."""

    @property
    def default_policy(self) -> str:
        return self.policy or f"pair/{self.name}"


@dataclass(frozen=True)
class PublishedPuzzles(Generic[I]):
    """Puzzles published by others as text files, `*.txt`."""

    name: str
    """Name of the split that selects these puzzles; `NAME/FOLDER` selects one folder."""
    title: str
    source: str
    """Location from which to get the puzzles."""
    read: Callable[[str, str, Any], Sequence[tuple[str, I]]]
    """Parser from a file's text, its name and the setting to puzzles, each with its number in the
    file. Raises ValueError with the line."""


@dataclass(frozen=True)
class Environment(Generic[D, I, E]):
    """An environment, as described above. Everything is pure: the same arguments yield the same
    puzzles and episodes."""

    name: str
    """Name on the command line and in `records.Task.environment`."""
    title: str
    agents: tuple[AgentSpec, ...]
    """Agents in the order of a turn, with different names."""
    difficulty: type[D]
    """A pydantic model with the fields of `--difficulty` and `--setting`. Its defaults are the
    environment's own."""
    instance: type[I]
    """A pydantic model, whose validation refuses invalid puzzles."""
    stream: Callable[[Split, int, D], Iterator[I]]
    """Yields puzzles of a split without end; the same seed yields the same puzzles. Raises
    ValueError if the difficulty allows none."""
    open: Callable[[I], E]
    """Opens an episode at its start. The episode's `verify` decides whether the puzzle is solved,
    and the rewards of its `apply` set the cost of a wrong move."""
    players: Mapping[str, Callable[[I, int], bool]] = field(
        default_factory=dict[str, Callable[[I, int], bool]]
    )
    """Hand-written players by name; each returns whether it solves a puzzle with an agent's budget,
    for a seed."""
    players_do: str = ""
    """Describes the players."""
    by_hand: Callable[[I], bool] = lambda instance: True
    """Whether the players can play a puzzle."""
    team_does: str = ""
    """Describes the cooperation of the agents."""
    sides: tuple[str, ...] = ()
    """Fields of the difficulty that `--size` sets."""
    describe: Callable[[D], str] = lambda difficulty: ""
    """Describes a difficulty, for example `10 x 10`."""
    solution: Callable[[I], str] = lambda instance: "solved"
    """Returns the solution for readers of a report; no agent and no judge sees it."""
    published: PublishedPuzzles[I] | None = None
    lessons: AnyLessons | None = None
    """Lessons that teach the environment to models with random weights."""
    outside: bool = False
    """Whether its episodes wait for a server: workers then play them in a thread."""
    origin: str = ""
    """`package.module:OBJECT` if the environment was found that way; the registry sets it."""

    def __post_init__(self) -> None:
        names = [agent.name for agent in self.agents]
        for name in (self.name, *names):
            # These names are part of prompt names, policies, adapter folders and report columns.
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"environment {self.name!r}: the name {name!r} must begin with a small letter, "
                    "and have at most 64 small letters, digits and _"
                )
        if not names or len(set(names)) < len(names):
            raise ValueError(f"environment {self.name!r}: agents need distinct names, not {names}")

    @property
    def key(self) -> str:
        """Value of `records.Task.environment`, by which every process finds the environment."""
        return self.origin or self.name

    def agent(self, name: Agent) -> AgentSpec:
        """Return the agent with this name. Raises `InvalidTask` if there is none."""
        for agent in self.agents:
            if agent.name == name:
                return agent
        agent_names = ", ".join(agent.name for agent in self.agents)
        raise InvalidTask(f"{self.name} has no agent {name!r}; its agents are: {agent_names}")

    def prompt(self, agent: AgentSpec, *, by_program: bool = False) -> Prompt:
        """Return the prompt of an agent. A text becomes the prompt `ENVIRONMENT_AGENT`."""
        if by_program and agent.program_prompt is not None:
            return agent.program_prompt
        if isinstance(agent.prompt, Prompt):
            return agent.prompt
        name = f"{self.name}_{agent.name}"
        content = f"---\nname: {name}\nversion: 1\n---\n{agent.prompt}\n"
        return parse_prompt(content, origin=f"the prompt of {agent.name} of {self.name}")

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Prompts of all agents."""
        return tuple(
            prompt
            for agent in self.agents
            for prompt in (self.prompt(agent), agent.program_prompt)
            if prompt is not None
        )

    def team(self, setting: Setting) -> tuple[Agent, ...]:
        """Return the agents that play, in the order of a turn. Raises `InvalidTask`."""
        team = setting.team or tuple(agent.name for agent in self.agents)
        return tuple(self.agent(name).name for name in team)

    def reset(self, instance: JsonObject) -> E:
        """Open an instance at its start. Raises `InvalidTask`."""
        puzzle = self.parse(instance)
        self.team(puzzle.setting)
        return self.open(puzzle)

    def parse(self, instance: JsonObject) -> I:
        """Parse an instance. Raises `InvalidTask` with the environment and the field."""
        return parse_instance(self.name, self.instance, instance)

    def task(self, instance: I) -> Task:
        """Return the task record of a puzzle."""
        return instance.task.model_copy(update={"environment": self.key})

    def levels(self, size: int | None, difficulty: JsonObject, setting: JsonObject) -> D:
        """Build the generator's settings: `size` cells along a side (None: its own default), its
        own options, and the setting. Raises `InvalidOptions` that names the option of the command
        (`--size`, `--difficulty` or `--setting`)."""
        if size is not None and not self.sides:
            raise InvalidOptions(
                f"{self.name}: --size {size}: its instances have no sides; see --difficulty"
            )
        sized = {} if size is None else dict.fromkeys(self.sides, size)
        try:
            wanted = json.dumps({**sized, **difficulty, "setting": setting})
            return _validate_instance(self.difficulty, wanted)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            names = [str(part) for part in first["loc"]]
            option = ".".join(names)
            if names[:1] == ["setting"]:
                option = f"--setting {'.'.join(names[1:])}"
            elif names and names[0] in self.sides and names[0] not in difficulty:
                option = f"--size {size}"
            elif names:
                option = f"--difficulty {option}"
            raise InvalidOptions(
                f"{self.name}: {option or '--difficulty'}: {first['msg']}"
            ) from error

    def puzzles(self, split: Split | str, seed: int, count: int, difficulty: D) -> list[I]:
        """Return `count` different instances of one split; a longer list starts with the shorter
        one. Raises ValueError if there are not enough."""
        drawn = self.stream(as_split(split), seed, difficulty)
        return take_distinct(drawn, count, lambda instance: instance.id)


AnyEnvironment = Environment[Any, Any, Episode]


def parse_instance(name: str, model: type[M], instance: JsonObject) -> M:
    """Parse an instance. Raises `InvalidTask` with the environment and the field."""
    try:
        return _validate_instance(model, json.dumps(instance))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the instance"
        raise InvalidTask(f"no {name} instance: {where}: {first['msg']}") from error


def _validate_instance(model: type[M], text: str) -> M:
    """Validate an instance. Raises ValidationError."""
    assert issubclass(model, BaseModel)
    return model.model_validate_json(text)

"""Environments: an object that has the rules, the generator, the verifier, the agents and the
hand-written players of a kind of puzzle.

A package of yours brings one by an entry point of the group `loopline.environments`:

    [project.entry-points."loopline.environments"]
    estimate = "my_package.estimate:ESTIMATE"

Then `bench puzzles --game estimate` plays it, and `train grpo loop OUTPUT --game estimate` trains
an adapter for each agent. Without an entry point it is `--game my_package.estimate:ESTIMATE`.

An environment whose agents speak in turn is written with
`loopline.agents.environments.conversation`: an instance defines what an agent sees, what a text
earns and whether the puzzle is solved. An environment with further state has an `Episode`
(`loopline.agents.environments.game`). Where a tool agent proposes and a plan agent acts, there is
an episode already: `loopline.agents.environments.team_episode`.
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
        """Most turns of an episode."""
        ...

    @property
    def team(self) -> tuple[Agent, ...]:
        """Agents that play, in the order of a turn; empty: all agents of the environment."""
        ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self: ...


class Difficulty(Protocol):
    """Settings of a generator: a frozen pydantic model."""

    @property
    def setting(self) -> Setting: ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self: ...


class Instance(Protocol):
    """A puzzle: a frozen pydantic model that holds everything, so that a run is rebuilt from it."""

    @property
    def id(self) -> str:
        """Id that is the same for the same puzzle, however it is played."""
        ...

    @property
    def split(self) -> Split | None:
        """Split of the puzzle, by its content; None where no generator makes it."""
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
    """Text that precedes what the agent sees."""
    policy: str = ""
    """Policy that answers for it where a deployment names none; empty: the adapter of its name of
    the pool `pair`."""
    program_prompt: Prompt | None = None
    """Prompt that replaces the other one where a team answers by programs."""
    writes_programs: bool = False
    """Whether it writes the program there, which a judge runs; the others read its result."""
    proposes: bool = False
    """Whether its actions are proposals to the agents after it, and move nothing while others
    act."""

    @property
    def default_policy(self) -> str:
        return self.policy or f"pair/{self.name}"


@dataclass(frozen=True)
class PublishedPuzzles(Generic[I]):
    """Puzzles that others have published as text files, `*.txt`."""

    name: str
    """Name of the split that asks for them; a folder of theirs is `NAME/FOLDER`."""
    title: str
    source: str
    """Place where to get them."""
    read: Callable[[str, str, Any], Sequence[tuple[str, I]]]
    """Parser from a file's text, its name and the setting to puzzles, each with its number in the
    file. Raises ValueError, naming the line."""


@dataclass(frozen=True)
class Environment(Generic[D, I, E]):
    """An environment, as described above. Everything is pure: the same arguments give the same
    puzzles and episodes."""

    name: str
    """Name on the command line and in `records.Task.environment`."""
    title: str
    agents: tuple[AgentSpec, ...]
    """Agents in the order of a turn, with different names."""
    difficulty: type[D]
    """A pydantic model; what `--difficulty` and `--setting` give are its fields. Its defaults are
    the environment's own."""
    instance: type[I]
    """A pydantic model. Validation refuses what is not a puzzle."""
    stream: Callable[[Split, int, D], Iterator[I]]
    """Endless puzzles of a split, the same ones for the same seed. Raises ValueError where the
    difficulty leaves none."""
    open: Callable[[I], E]
    """Opens an episode at its beginning. Its `verify` says whether the puzzle is solved, and the
    rewards of `apply` what a wrong move costs."""
    players: Mapping[str, Callable[[I, int], bool]] = field(
        default_factory=dict[str, Callable[[I, int], bool]]
    )
    """Hand-written players: whether one solves a puzzle with an agent's budget, for a seed."""
    players_do: str = ""
    """Description of the players."""
    by_hand: Callable[[I], bool] = lambda instance: True
    """Whether the players know what to do with a puzzle."""
    team_does: str = ""
    """Description of what its agents do together."""
    sides: tuple[str, ...] = ()
    """Fields of the difficulty that `--size` stands for."""
    describe: Callable[[D], str] = lambda difficulty: ""
    """Description of a difficulty: `10 x 10`."""
    solution: Callable[[I], str] = lambda instance: "solved"
    """Solution that a reader of a report compares with; no agent and no judge sees it."""
    published: PublishedPuzzles[I] | None = None
    lessons: AnyLessons | None = None
    """Lessons that teach it to models that begin with random weights."""
    outside: bool = False
    """Whether its episodes ask a server, and wait: workers play them alongside their event loop."""
    origin: str = ""
    """`package.module:OBJECT` where it was found by that; set by the registry."""

    def __post_init__(self) -> None:
        names = [agent.name for agent in self.agents]
        for name in (self.name, *names):
            # They are part of the names of prompts, policies, folders of adapters and columns of
            # reports.
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"environment {self.name!r}: the name {name!r} must begin with a small letter, "
                    "and have at most 64 small letters, digits and _"
                )
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"environment {self.name!r}: agents need names that differ, not {names}"
            )

    @property
    def key(self) -> str:
        """Value of `records.Task.environment`, by which every process finds it again."""
        return self.origin or self.name

    def agent(self, name: Agent) -> AgentSpec:
        """The agent of that name. Raises `InvalidTask` for a name that no agent has."""
        for agent in self.agents:
            if agent.name == name:
                return agent
        agent_names = ", ".join(agent.name for agent in self.agents)
        raise InvalidTask(f"{self.name} has no agent {name!r}; its agents are: {agent_names}")

    def prompt(self, agent: AgentSpec, *, by_program: bool = False) -> Prompt:
        """Prompt of an agent. A text becomes the prompt `ENVIRONMENT_AGENT`."""
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
        """Agents that play, in the order of a turn. Raises `InvalidTask`."""
        team = setting.team or tuple(agent.name for agent in self.agents)
        return tuple(self.agent(name).name for name in team)

    def reset(self, instance: JsonObject) -> E:
        """The beginning of an instance. Raises `InvalidTask`."""
        puzzle = self.parse(instance)
        self.team(puzzle.setting)
        return self.open(puzzle)

    def parse(self, instance: JsonObject) -> I:
        """Parse an instance. Raises `InvalidTask`, naming the environment and the field."""
        return parse_instance(self.name, self.instance, instance)

    def task(self, instance: I) -> Task:
        """The record of a puzzle."""
        return instance.task.model_copy(update={"environment": self.key})

    def levels(self, size: int | None, difficulty: JsonObject, setting: JsonObject) -> D:
        """Settings of the generator: `size` cells along a side (None: its own default), its own
        options, and how it is played. Raises `InvalidOptions`, which names the option of the
        command (`--size`, `--difficulty` or `--setting`)."""
        if size is not None and not self.sides:
            raise InvalidOptions(
                f"{self.name}: --size {size}: they have no sides; see --difficulty"
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
        """`count` different instances of one split; a longer list begins with the shorter one.
        Raises ValueError where there are not that many."""
        drawn = self.stream(as_split(split), seed, difficulty)
        return take_distinct(drawn, count, lambda instance: instance.id)


AnyEnvironment = Environment[Any, Any, Episode]


def parse_instance(name: str, model: type[M], instance: JsonObject) -> M:
    """Parse an instance. Raises `InvalidTask`, naming the environment and the field."""
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

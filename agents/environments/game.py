"""An episode of an environment: observations, effects and rewards of actions, and whether the task
is solved. `loopline.agents.environments.environment` defines the object that has episodes.

    episode = environment.reset(instance)
    while not episode.done:
        text = policy(episode.observe(episode.agent))
        rewards, observation, done = episode.apply(episode.agent, text)
    episode.verify()

An instance is a complete JSON object (`records.Task.instance`). An action is a model's text; only
the environment parses it, so there is a single interpretation. Everything is pure: the same
instance and texts lead to the same episode (`replay_episode`), and trials on a `copy` leave the
original unchanged. This is how K candidates are scored before the best one is applied. If agents
answer by programs (`ProgrammedEpisode`), the program's result is passed together with the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self, runtime_checkable

from loopline.agents.environments.tool_program import ProgramRun, ToRun
from loopline.agents.errors import AgentError, environment_code
from loopline.agents.records import JsonObject

Agent = str
"""The name of an agent, chosen by its environment."""

Scheme = Literal["paper", "dense", "sparse", "progress"]
"""`paper`: α·team + local, as in the AT-GRPO paper. `dense`: the step rewards of its published
code, without its rewards for moving back and forth. `sparse`: 1 for an action after which the task
is solved, or would be if the proposal were carried out, else 0. `progress`: Φ(after) − Φ(before),
the same for both agents, where Φ is the completed share of the way to the solution (potential-based
shaping: Ng, Harada and Russell 1999, with γ = 1), plus 0.1 for a readable text; the same as
`sparse` in an environment without such a measure."""

Group = Literal["team", "local", "dense", "sparse", "progress"]

READABLE = 0.1
"""Reward in `progress` for a readable text."""


class OutOfTurn(AgentError, ValueError):
    """An agent acted out of turn, or after the end."""


class ProgramNotRun(AgentError, ValueError):
    """A program was applied without its result: an episode never runs programs."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why an action, or a part of it, was not carried out."""

    reason: str
    """Fixed name, for counting: `no_answer`, `wall`, `given`, …"""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a reward; it is worth `weight * score`."""

    group: Group
    name: str
    score: float
    weight: float


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of one action, in parts.

    r = α · team + mask · Σ c_l · s_l, with Σ c_l = 1 (AT-GRPO, reward of agent i at turn t). The
    mask is 0 for an unreadable action, which therefore earns no local part.
    """

    parts: tuple[Part, ...]
    mask: float = 1.0

    def total(self, scheme: Scheme = "paper", alpha: float = 1.0) -> float:
        """Return the reward as one number. `alpha` is the weight of the team's part in `paper`."""
        sums = self.sums()
        return alpha * sums["team"] + sums["local"] if scheme == "paper" else sums[scheme]

    def sums(self) -> dict[str, float]:
        """Return the sum of each group of parts, with the mask applied: everything that `total`
        needs."""
        sums = {group: self._sum(group) for group in ("team", "dense", "sparse")}
        measured = any(part.group == "progress" for part in self.parts)
        progress = self._sum("progress") if measured else sums["sparse"]
        return {**sums, "local": self.mask * self._sum("local"), "progress": progress}

    def scores(self) -> dict[str, float]:
        """Return the unweighted score of every part by `group.name`, and `mask`."""
        named = {f"{part.group}.{part.name}": part.score for part in self.parts}
        return {**named, "mask": self.mask}

    def weights(self) -> dict[str, float]:
        """Return the weight of every part by `group.name`."""
        return {f"{part.group}.{part.name}": part.weight for part in self.parts}

    def _sum(self, group: Group) -> float:
        return sum(part.weight * part.score for part in self.parts if part.group == group)


@dataclass(frozen=True, slots=True)
class Observation:
    """Result of an action."""

    action: JsonObject
    """The parsed action: `moves`, `cells` or `calls`; empty if it was unreadable."""
    refusals: tuple[Refusal, ...]
    text: str
    """Text about the action for the agents; for a tool agent, the output of its calls."""


class Transition(NamedTuple):
    """Return value of `Episode.apply`."""

    rewards: Rewards
    observation: Observation
    done: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` describes the fault; it is empty if the task is solved."""

    reason: str = ""
    measures: Mapping[str, float] = field(default_factory=dict[str, float])
    """Further measures of a solution, by name, such as how much longer it is than the shortest
    one."""

    @property
    def solved(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """An applied action."""

    agent: Agent
    text: str
    ran: ProgramRun | None = None
    """Result of its program, if it was one."""


@runtime_checkable
class Episode(Protocol):
    """One attempt at an instance."""

    @property
    def agents(self) -> tuple[Agent, ...]:
        """Agents that act in a turn, in order."""
        ...

    @property
    def agent(self) -> Agent:
        """Agent that acts next."""
        ...

    @property
    def turn(self) -> int:
        """Number of completed turns."""
        ...

    @property
    def done(self) -> bool:
        """Whether the episode is solved, finally answered, or out of turns. `verify` decides about
        success."""
        ...

    @property
    def actions(self) -> tuple[ActionRecord, ...]:
        """Every action so far. Together with the instance, these are the whole state."""
        ...

    def observe(self, agent: Agent) -> str:
        """Return the agent's current observation."""
        ...

    def apply(self, agent: Agent, text: str) -> Transition:
        """Carry out an action. Any text is an action, but it may be refused. Raises `OutOfTurn`."""
        ...

    def verify(self) -> Verdict:
        """Decide whether the task is solved, recomputed from the instance and the actions; no state
        or flag of the episode is trusted."""
        ...

    def copy(self) -> Self:
        """Return an episode in the same state, for trials."""
        ...


@runtime_checkable
class ProgrammedEpisode(Episode, Protocol):
    """An episode with an agent that may answer by a program, which the episode does not run
    itself."""

    @property
    def by_program(self) -> bool:
        """Whether the tool agent answers by a program."""
        ...

    def to_run(self, agent: Agent, text: str) -> ToRun | None:
        """Return the program that must be run before this text can be applied; None if there is
        none."""
        ...

    def apply(self, agent: Agent, text: str, ran: ProgramRun | None = None) -> Transition:
        """Carry out an action. `ran`: the result of its program. Raises `ProgramNotRun` if there is
        a program without one."""
        ...


class Resettable(Protocol):
    """An object that has episodes: an `Environment`."""

    @property
    def name(self) -> str: ...

    def reset(self, instance: JsonObject) -> Episode: ...


def replay_episode(
    environment: Resettable, instance: JsonObject, actions: Iterable[ActionRecord]
) -> Episode:
    """Return the episode after these actions. Raises `InvalidTask`, `OutOfTurn` or `ProgramNotRun`,
    and `EnvironmentFault` for any other error of the environment's code."""
    with environment_code(environment.name, "while the instance was set up"):
        episode = environment.reset(instance)
    for action in actions:
        with environment_code(environment.name, f"as an action of {action.agent} was played again"):
            replay_action(episode, action)
    return episode


def replay_action(episode: Episode, action: ActionRecord) -> Transition:
    """Apply a recorded action again. Raises `OutOfTurn` or `ProgramNotRun`."""
    if isinstance(episode, ProgrammedEpisode):
        return episode.apply(action.agent, action.text, action.ran)
    return episode.apply(action.agent, action.text)


def progress_parts(before: float, after: float, read: float) -> tuple[Part, ...]:
    """Return the parts of `progress` from Φ before and after an action. `read` is 0 or 1."""
    return weighted_parts("progress", {"nearer": (1.0, after - before), "format": (READABLE, read)})


def weighted_parts(group: Group, scores: Mapping[str, tuple[float, float]]) -> tuple[Part, ...]:
    """Build the parts of one group from name → (weight, score)."""
    return tuple(Part(group, name, score, weight) for name, (weight, score) in scores.items())

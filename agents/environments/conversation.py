"""Environments whose agents speak in turn. An instance defines what an agent sees of the
conversation so far, a text's reward, and whether the puzzle is solved.

    class Riddle(Conversation):
        answer: int

        def observe(self, agent, actions): ...
        def judge(self, agent, text, actions): ...
        def reason(self, actions): ...

    RIDDLES = conversation_environment(
        "riddles", "Riddles", (AgentSpec("guesser", "You guess."), AgentSpec("critic", "…")),
        Riddle, Level, draw,
    )

The conversation is the whole state, so replaying and copying an episode need no extra code. An
environment with other state needs its own episode (`loopline.agents.environments.game`).
"""

from __future__ import annotations

import json
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from pydantic import Field

from loopline.agents.environments.environment import AgentSpec, Environment
from loopline.agents.environments.game import (
    ActionRecord,
    Agent,
    Observation,
    OutOfTurn,
    Refusal,
    Rewards,
    Transition,
    Verdict,
    weighted_parts,
)
from loopline.agents.environments.puzzle_splits import Split, content_hash, draw_puzzles, split_of
from loopline.agents.records import JsonObject, Record, Task

_TRIES = 5_000
"""Maximum consecutive draws without a puzzle of the split; then the difficulty is considered
impossible."""


class TurnSetting(Record):
    """How an instance is played; part of the instance, so that a run can be rebuilt exactly."""

    turns: int = Field(default=1, ge=1, le=400)
    """Maximum turns of an episode; in each turn, every agent of the team acts once, unless the
    instance chooses another order."""
    team: tuple[Agent, ...] = ()
    """Agents that play, in the order of a turn; empty means all agents of the environment."""
    mistake_cost: float = Field(default=0.1, ge=0, le=10)
    """Cost of a refused text in the scheme `dense`. In `paper`, a refused text earns nothing."""


class TurnLevel(Record):
    """Base class of a difficulty."""

    setting: TurnSetting = TurnSetting()


@dataclass(frozen=True, slots=True)
class Judged:
    """Judgement of a text."""

    score: float = 0.0
    """The agent's own share of the reward, from 0 to 1."""
    action: JsonObject = field(default_factory=dict)
    """The parsed text; empty if it was unreadable."""
    refusal: str = ""
    """Fixed name of the reason for a refusal, such as `no_number`."""
    text: str = ""
    """Result of the text, in the form recorded."""


class Conversation(Record):
    """A puzzle: the content of `records.Task.instance`."""

    setting: TurnSetting = TurnSetting()

    @abstractmethod
    def observe(self, agent: Agent, actions: Sequence[ActionRecord]) -> str:
        """Return the agent's observation after these actions."""

    @abstractmethod
    def judge(self, agent: Agent, text: str, actions: Sequence[ActionRecord]) -> Judged:
        """Judge this text after these actions."""

    @abstractmethod
    def reason(self, actions: Sequence[ActionRecord]) -> str:
        """Return why these actions do not solve the puzzle; empty if they do."""

    def over(self, actions: Sequence[ActionRecord]) -> bool:
        """Whether no further action can change the outcome. Called between turns."""
        return not self.reason(actions)

    def following(self, team: tuple[Agent, ...], actions: Sequence[ActionRecord]) -> Agent:
        """Return the agent that acts next; by default, the team's agents act in order."""
        return team[len(actions) % len(team)]

    @property
    def content(self) -> str:
        """Content that identifies the puzzle: everything except the setting."""
        return json.dumps(self.model_dump(mode="json", exclude={"setting"}), sort_keys=True)

    @property
    def id(self) -> str:
        """First 16 hex digits of the content's SHA-256."""
        return content_hash(self.content)[:16]

    @property
    def split(self) -> Split:
        """Split of the puzzle, by its content."""
        return split_of(self.content)

    @property
    def task(self) -> Task:
        """The puzzle's task record, except for the environment's name (`Environment.task`)."""
        return Task(instance=self.model_dump(mode="json"), prompt=self.content)


P = TypeVar("P", bound=Conversation)
L = TypeVar("L", bound=TurnLevel)


@dataclass
class ConversationEpisode:
    """Episode of a conversation: see `loopline.agents.environments.game.Episode`."""

    puzzle: Conversation
    agents: tuple[Agent, ...]
    actions: tuple[ActionRecord, ...] = ()

    @property
    def agent(self) -> Agent:
        return self.puzzle.following(self.agents, self.actions)

    @property
    def turn(self) -> int:
        return len(self.actions) // len(self.agents)

    @property
    def done(self) -> bool:
        between = len(self.actions) % len(self.agents) == 0
        if self.turn >= self.puzzle.setting.turns:
            return True
        return bool(self.actions) and between and self.puzzle.over(self.actions)

    def observe(self, agent: Agent) -> str:
        return self.puzzle.observe(agent, self.actions)

    def apply(self, agent: Agent, text: str) -> Transition:
        if self.done:
            raise OutOfTurn(f"the episode ended after turn {self.turn}: {agent} can't act any more")
        if agent != self.agent:
            raise OutOfTurn(f"it is the turn of {self.agent}, not of {agent}")
        judged = self.puzzle.judge(agent, text, self.actions)
        self.actions = (*self.actions, ActionRecord(agent, text))
        read = 0.0 if judged.refusal else 1.0
        solved = float(not self.puzzle.reason(self.actions))
        mistake = (self.puzzle.setting.mistake_cost, read - 1.0)
        rewards = Rewards(
            (
                *weighted_parts("team", {"solved": (1.0, solved)}),
                *weighted_parts("local", {"score": (1.0, judged.score)}),
                *weighted_parts("dense", {"score": (1.0, judged.score), "mistake": mistake}),
                *weighted_parts("sparse", {"solved": (1.0, solved)}),
            ),
            mask=read,
        )
        refusals = (Refusal(judged.refusal),) if judged.refusal else ()
        return Transition(rewards, Observation(judged.action, refusals, judged.text), self.done)

    def verify(self) -> Verdict:
        return Verdict(self.puzzle.reason(self.actions))

    def copy(self) -> Self:
        return replace(self)


def conversation_environment(
    name: str,
    title: str,
    agents: tuple[AgentSpec, ...],
    puzzle: type[P],
    level: type[L],
    draw: Callable[[random.Random, L], P],
    players: Mapping[str, Callable[[P, int], bool]] | None = None,
    **more: Any,
) -> Environment[L, P, ConversationEpisode]:
    """Build the environment of these puzzles. `draw` creates a random puzzle with the level's
    setting. `more`: further fields of `Environment`."""
    team = tuple(agent.name for agent in agents)

    def stream(split: Split, seed: int, difficulty: L) -> Iterator[P]:
        def wanted(rng: random.Random) -> P | None:
            instance = draw(rng, difficulty)
            return instance if instance.split is split else None

        return draw_puzzles(name, split, seed, wanted, _TRIES)

    def opened(instance: P) -> ConversationEpisode:
        return ConversationEpisode(instance, instance.setting.team or team)

    return Environment(
        name=name,
        title=title,
        agents=agents,
        difficulty=level,
        instance=puzzle,
        stream=stream,
        open=opened,
        players=players or {},
        **more,
    )

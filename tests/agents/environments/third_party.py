"""An environment as another package would provide it, with its own episode class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Self

from loopline.agents.environments.environment import Environment
from loopline.agents.environments.game import (
    ActionRecord,
    Agent,
    Observation,
    OutOfTurn,
    Rewards,
    Transition,
    Verdict,
    weighted_parts,
)
from loopline.agents.environments.puzzle_splits import Split, split_of
from loopline.agents.environments.team_episode import AGENTS, SPECS
from loopline.agents.records import JsonObject, Record, Task


@dataclass
class CountingUp:
    """Both agents say the next number in turn, up to a goal."""

    goal: int
    actions: tuple[ActionRecord, ...] = ()

    @property
    def agents(self) -> tuple[Agent, ...]:
        return AGENTS

    @property
    def agent(self) -> Agent:
        return AGENTS[len(self.actions) % 2]

    @property
    def turn(self) -> int:
        return len(self.actions) // 2

    @property
    def done(self) -> bool:
        return len(self.actions) >= self.goal and self.agent == AGENTS[0]

    def observe(self, agent: Agent) -> str:
        return f"Count up to {self.goal}. Said: {[step.text for step in self.actions]}"

    def apply(self, agent: Agent, text: str) -> Transition:
        if self.done or agent != self.agent:
            raise OutOfTurn(agent)
        right = float(text == str(len(self.actions) + 1))
        self.actions = (*self.actions, ActionRecord(agent, text))
        rewards = Rewards(weighted_parts("local", {"right": (1.0, right)}))
        return Transition(rewards, Observation({"said": text}, (), text), self.done)

    def verify(self) -> Verdict:
        texts = [step.text for step in self.actions]
        wanted = [str(number + 1) for number in range(len(texts))]
        return Verdict("" if texts == wanted and len(texts) >= self.goal else f"said {texts}")

    def copy(self) -> Self:
        return replace(self)


class Setting(Record):
    turns: int = 20
    team: tuple[Agent, ...] = ()


class Level(Record):
    setting: Setting = Setting()


class CountUp(Record):
    """The goal of the count."""

    goal: int
    setting: Setting = Setting()

    @property
    def id(self) -> str:
        return str(self.goal)

    @property
    def split(self) -> Split:
        return split_of(self.id)

    @property
    def task(self) -> Task:
        instance: JsonObject = self.model_dump(mode="json")
        return Task(instance=instance, prompt=f"Count up to {self.goal}.")


def stream(split: Split, seed: int, level: Level) -> Iterator[CountUp]:
    numbered = (CountUp(goal=goal, setting=level.setting) for goal in count(seed))
    return (instance for instance in numbered if instance.split is split)


game = Environment[Level, CountUp, CountingUp](
    name="count_up",
    title="Counting up",
    agents=SPECS,
    difficulty=Level,
    instance=CountUp,
    stream=stream,
    open=lambda instance: CountingUp(instance.goal),
)

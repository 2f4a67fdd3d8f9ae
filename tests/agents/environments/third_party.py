"""An environment as another package would bring it along: only what the protocol asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from loopline.agents.environments.game import (
    AGENTS,
    Agent,
    Applied,
    Observation,
    OutOfTurn,
    Rewards,
    Taken,
    Verdict,
    weighted,
)
from loopline.agents.errors import InvalidTask
from loopline.agents.records import JsonObject


@dataclass
class CountingUp:
    """Both agents say the next number, in turn, up to a goal."""

    goal: int
    taken: tuple[Taken, ...] = ()

    @property
    def agents(self) -> tuple[Agent, ...]:
        return AGENTS

    @property
    def agent(self) -> Agent:
        return AGENTS[len(self.taken) % 2]

    @property
    def turn(self) -> int:
        return len(self.taken) // 2

    @property
    def done(self) -> bool:
        return len(self.taken) >= self.goal and self.agent == AGENTS[0]

    def observe(self, agent: Agent) -> str:
        return f"Count up to {self.goal}. Said: {[one.text for one in self.taken]}"

    def apply(self, agent: Agent, text: str) -> Applied:
        if self.done or agent != self.agent:
            raise OutOfTurn(agent)
        right = float(text == str(len(self.taken) + 1))
        self.taken = (*self.taken, Taken(agent, text))
        rewards = Rewards(weighted("local", {"right": (1.0, right)}))
        return Applied(rewards, Observation({"said": text}, (), text), self.done)

    def verify(self) -> Verdict:
        said = [one.text for one in self.taken]
        wanted = [str(number + 1) for number in range(len(said))]
        return Verdict("" if said == wanted and len(said) >= self.goal else f"said {said}")

    def copy(self) -> Self:
        return replace(self)


class CountUp:
    """See `loopline.agents.environments.game.Game`."""

    name = "count_up"

    def reset(self, instance: JsonObject) -> CountingUp:
        goal = instance.get("goal")
        if not isinstance(goal, int):
            raise InvalidTask("no count_up instance: goal is no number")
        return CountingUp(goal)


game = CountUp()

"""Reads posted rewards from the store and joins them to the runs that they are for."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import ValidationError

from loopline.agents.records import RECORDS_VERSION, Candidate, Run, Step, Trajectory
from loopline.agents.rewards import SESSION_TAG, Reward, RewardPlace
from loopline.workers.store.records import OTHER_VERSION, Skipped, checked_rows, skipped_record

TEAM, AGENT, TURN = "team", "agent", "turn"
"""Names of reward parts: the reward of the whole team, of one agent, of one turn."""


class EntryOrder(NamedTuple):
    """Place of a reward in the order of all rewards. The ids of a stream's entries increase, and
    all streams use the clock of one server."""

    milliseconds: int
    number: int
    shard: int

    @classmethod
    def of(cls, entry: str, shard: int) -> Self:
        """Parse an entry's id."""
        milliseconds, _, number = entry.partition("-")
        return cls(int(milliseconds), int(number), shard)


class RecordedReward(NamedTuple):
    """A reward as the recorder wrote it."""

    order: EntryOrder
    reward: Reward

    @property
    def entry(self) -> str:
        """Unique name of the reward's row."""
        return f"{self.order.shard}/{self.order.milliseconds}-{self.order.number}"


@dataclass(frozen=True)
class PostedRewards:
    """All rewards of a store, without duplicates."""

    rewards: tuple[RecordedReward, ...]
    """Rewards in the order in which they were accepted."""
    skipped: tuple[Skipped, ...] = ()

    @cached_property
    def versions(self) -> Mapping[RewardPlace, tuple[Reward, ...]]:
        """Rewards of each place, oldest first: the last one is valid."""
        by_place: dict[RewardPlace, list[Reward]] = defaultdict(list)
        for recorded in self.rewards:
            by_place[recorded.reward.place].append(recorded.reward)
        return {place: tuple(versions) for place, versions in by_place.items()}

    def of_target(self, sources: Collection[str] | None = None) -> dict[str, list[Reward]]:
        """Valid rewards, by run or session; only those from `sources`, if given."""
        by_target: dict[str, list[Reward]] = defaultdict(list)
        for place, versions in self.versions.items():
            if sources is None or place.source in sources:
                by_target[place.target].append(versions[-1])
        return dict(by_target)


def read_rewards(store: Path, entries: Collection[str] | None = None) -> PostedRewards:
    """The rewards in a store, empty without a store; only those of these entries, if given.

    Of rows with the same id for the same run or session, the first one is valid: the later ones
    were accepted because the bus had forgotten the id.
    """
    skipped: list[Skipped] = []
    recorded: list[RecordedReward] = []
    for where, (body, shard, entry) in checked_rows(
        store / "rewards", ("reward", "shard", "entry"), skipped
    ):
        try:
            reward = Reward.model_validate_json(body)
        except ValidationError as error:
            skipped.append(skipped_record(where, body, error))
            continue
        if reward.version != RECORDS_VERSION:
            detail = f"version {reward.version}; this program reads {RECORDS_VERSION}"
            skipped.append(Skipped(where, OTHER_VERSION, detail))
            continue
        recorded.append(RecordedReward(EntryOrder.of(entry, shard), reward))
    rewards = (
        item for item in first_of_each_id(recorded) if entries is None or item.entry in entries
    )
    return PostedRewards(tuple(rewards), tuple(skipped))


def first_of_each_id(recorded: Iterable[RecordedReward]) -> tuple[RecordedReward, ...]:
    """Keep the first reward of each target and id, in the order in which they were accepted."""
    once: dict[tuple[str, str], RecordedReward] = {}
    for item in sorted(recorded, key=lambda item: item.order):
        once.setdefault((item.reward.target, item.reward.id), item)
    return tuple(once.values())


def targets_of(run: Run) -> tuple[str, ...]:
    """The targets whose rewards apply to a run: its own and its session's. Other accounts' targets
    are excluded, since two callers may use the same session name."""
    return (*own_targets(run), *session_targets(run))


def own_targets(run: Run) -> tuple[str, ...]:
    """The targets of the run itself: for rewards from direct users of the bus, and for those from
    its account."""
    return (run.id, f"{run.account}/{run.id}") if run.account else (run.id,)


def session_targets(run: Run) -> tuple[str, ...]:
    """The targets of the run's session; empty if it has none."""
    session = run.tags.get(SESSION_TAG)
    if session is None:
        return ()
    name = f"session/{session}"
    return (name, f"{run.account}/{name}") if run.account else (name,)


@dataclass(frozen=True)
class Feedback:
    """Sums of rewards: for the team, by agent, and by turn; the latter for the team (None) or an
    agent."""

    team: float | None = None
    agents: Mapping[str, float] = field(default_factory=dict[str, float])
    turns: Mapping[tuple[str | None, int], float] = field(
        default_factory=dict[tuple[str | None, int], float]
    )

    @classmethod
    def of(cls, rewards: Iterable[Reward]) -> Feedback:
        """Combine the rewards that apply to one run. Those from several sources are added up."""
        values: dict[tuple[str | None, int | None], list[float]] = defaultdict(list)
        for reward in rewards:
            values[reward.agent, reward.turn].append(reward.value)
        sums = {place: math.fsum(parts) for place, parts in values.items()}
        return cls(
            team=sums.get((None, None)),
            agents={
                agent: value
                for (agent, turn), value in sums.items()
                if agent is not None and turn is None
            },
            turns={
                (agent, turn): value for (agent, turn), value in sums.items() if turn is not None
            },
        )

    def __bool__(self) -> bool:
        return self.team is not None or bool(self.agents) or bool(self.turns)

    def of_turn(self, agent: str, turn: int) -> float | None:
        """The reward of one turn of an agent."""
        return add(self.turns.get((None, turn)), self.turns.get((agent, turn)))


def rewarded_by(trajectory: Trajectory, feedback: Feedback) -> Trajectory:
    """The run with these rewards in place of the recorded ones.

    `team_reward` is the team's. `agent_rewards` are an agent's own reward plus the mean of its
    rewarded turns. The candidate that was executed in a step gets the parts `team`, `agent` and
    `turn`; the results of the other candidates are unknown, so they get no parts.
    """
    turn_rewards: dict[str, list[float]] = defaultdict(list)
    steps: list[Step] = []
    for step in trajectory.steps:
        turn = feedback.of_turn(step.agent, step.turn)
        if turn is not None:
            turn_rewards[step.agent].append(turn)
        parts = {TEAM: feedback.team, AGENT: feedback.agents.get(step.agent), TURN: turn}
        values = {name: value for name, value in parts.items() if value is not None}
        steps.append(step.model_copy(update={"candidates": _with_parts(step, values)}))
    means = {agent: mean(values) for agent, values in turn_rewards.items()}
    agents = {
        agent: value
        for agent in {*feedback.agents, *means}
        if (value := add(feedback.agents.get(agent), means.get(agent))) is not None
    }
    return trajectory.model_copy(
        update={
            "steps": tuple(steps),
            "team_reward": feedback.team,
            "agent_rewards": dict(sorted(agents.items())),
        }
    )


def _with_parts(step: Step, parts: Mapping[str, float]) -> tuple[Candidate, ...]:
    return tuple(
        candidate.model_copy(
            update={"reward_parts": dict(parts) if number == step.selected else {}}
        )
        for number, candidate in enumerate(step.candidates)
    )


def add(first: float | None, second: float | None) -> float | None:
    """The sum of the given values; None if there are none."""
    values = [value for value in (first, second) if value is not None]
    return math.fsum(values) if values else None


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the given values; None if there are none."""
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None

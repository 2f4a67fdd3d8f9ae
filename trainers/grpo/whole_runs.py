"""MAS + GRPO's rollouts in this process: K whole runs of each puzzle compete with each other.

Each run proceeds on its own, with one completion per observation. A run is a member of a group for
each of its agents, with everything that the agent wrote in it (`groups`, grouping `trajectory`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopline.agents.environments.game import Agent, Episode
from loopline.agents.records import PolicyRef
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.sampling import Sampler
from loopline.trainers.grpo.sequences import TokenSequence
from loopline.trainers.grpo.vectorized_rollout import (
    TEMPERATURE,
    Prompter,
    RolloutResult,
    Rules,
    Table,
    outcomes_of,
    sequence_of,
    turns,
)

if TYPE_CHECKING:
    import torch


@dataclass
class _Run:
    """One of the K runs of a puzzle, with each agent's sequences and the rewards of its actions."""

    episode: Episode
    sequences: dict[Agent, list[TokenSequence]] = field(
        default_factory=dict[Agent, list[TokenSequence]]
    )
    earned: dict[Agent, list[float]] = field(default_factory=dict[Agent, list[float]])

    def add(self, agent: Agent, sequence: TokenSequence, text: str, rules: Rules) -> None:
        applied = self.episode.apply(agent, text)
        self.sequences.setdefault(agent, []).append(sequence)
        self.earned.setdefault(agent, []).append(applied.rewards.total(rules.scheme))

    def reward(self, agent: Agent) -> float:
        """1 if it ended solved, plus the mean reward of the agent's actions. `rewards.run_reward`
        returns the same for a recorded run that only records whether it was solved, at α = 1. A sum
        would reward aimless moves."""
        agent_rewards = self.earned[agent]
        return float(self.episode.verify().solved) + math.fsum(agent_rewards) / len(agent_rewards)


def roll_out_runs(
    tables: Sequence[Table],
    prompter: Prompter,
    sampler: Sampler,
    rules: Rules,
    policy: Callable[[Agent], PolicyRef],
    activate: Callable[[Agent], object],
    generator: torch.Generator,
    run: str,
) -> RolloutResult:
    """Play every episode K times, from start to finish; the arguments are those of
    `vectorized_rollout.roll_out`. Outcomes are listed puzzle by puzzle, run by run."""
    runs = [_Run(table.episode.copy()) for table in tables for _ in range(rules.candidates)]
    playing = {
        number: whole_run for number, whole_run in enumerate(runs) if not whole_run.episode.done
    }
    for agent, at, prompts in turns(playing, prompter, activate):
        sampled = sampler.sample(
            prompts, count=1, limit=rules.limit, temperature=TEMPERATURE, generator=generator
        )
        for index, prompt, (completion,) in zip(at, prompts, sampled, strict=True):
            sequence = sequence_of(prompt, completion, TEMPERATURE)
            playing[index].add(agent, sequence, prompter.text(completion), rules)
            if playing[index].episode.done:
                del playing[index]
    outcomes = {number: whole_run.episode.verify().solved for number, whole_run in enumerate(runs)}
    groups: list[Group] = []
    for number, table in enumerate(tables):
        first = number * rules.candidates
        groups += _groups(table, runs[first : first + rules.candidates], policy, run)
    return RolloutResult(tuple(groups), outcomes_of(outcomes))


def _groups(
    table: Table, runs: Sequence[_Run], policy: Callable[[Agent], PolicyRef], name: str
) -> list[Group]:
    return [
        Group(
            GroupKey(table.instance, agent, None, None),
            policy(agent),
            tuple(
                Member(
                    f"{name}/{table.instance}#{number}/{agent}",
                    run.reward(agent),
                    tuple(run.sequences[agent]),
                )
                for number, run in enumerate(runs)
            ),
        )
        for agent in table.episode.agents
    ]

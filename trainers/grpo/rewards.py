"""What a candidate, or a whole run, is worth to an agent: team reward + α · local reward.

The paper writes r(t, i) = α · team + local with α = 1, and local = Σ c_l · s_l over parts such as
format and legality with Σ c_l = 1 (arXiv 2510.11062, §4 and its appendix); with α = 1 both are the
same. An environment whose parts are weighted already needs no weights here; one that has added
them up itself says the sum as `total`, and what it was added up from does not count again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from agents.records import Candidate, Step, Trajectory
from trainers.data.json_files import Unreadable

TEAM = "team"
"""Name of the reward part that the agents of a team share; every other part is local."""
TOTAL = "total"
"""Name of the part that is the weighted sum of the others."""
NO_REWARD = "candidate without a reward"
NOT_A_NUMBER = "reward that is no finite number"


class RewardWeights(BaseModel):
    """How reward parts become one reward."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    team: float = Field(default=1.0, allow_inf_nan=False)
    local: float = Field(default=1.0, allow_inf_nan=False)
    """α."""
    parts: dict[str, float] = Field(default_factory=dict)
    """c_l of each local part; a part that is not named has none. Empty: each has 1."""


def candidate_reward(parts: Mapping[str, float], weights: RewardWeights) -> float:
    """team · r_team + local · Σ c_l · s_l. Raises `Unreadable` without any part, or for a part
    that is no number (a reward function that failed)."""
    if not parts:
        raise Unreadable(NO_REWARD)
    return _finite(
        weights.team * parts.get(TEAM, 0.0) + weights.local * local_reward(parts, weights), parts
    )


def local_reward(parts: Mapping[str, float], weights: RewardWeights) -> float:
    """Σ c_l · s_l over all parts but the team's; `total` instead, where it is said and no part is
    named."""
    named = weights.parts
    if TOTAL in parts and not named:
        return parts[TOTAL]
    return math.fsum(
        (named.get(name, 0.0) if named else 1.0) * value
        for name, value in sorted(parts.items())
        if name != TEAM
    )


def run_reward(trajectory: Trajectory, agent: str, weights: RewardWeights) -> float:
    """What a whole run is worth to one of its agents.

    The team's reward is the run's own or, where nobody has set it, that of the last executed
    candidate that has one; the agent's is the run's own for it or the mean over its executed
    candidates. Raises `Unreadable` as `candidate_reward` does.
    """
    executed = [(step, chosen(step)) for step in trajectory.steps if step.candidates]
    team = trajectory.team_reward
    for _, candidate in reversed(executed):
        if team is None:
            team = candidate.reward_parts.get(TEAM)
    local = trajectory.agent_rewards.get(agent)
    if local is None:
        own = [
            local_reward(candidate.reward_parts, weights)
            for step, candidate in executed
            if step.agent == agent and set(candidate.reward_parts) - {TEAM}
        ]
        local = math.fsum(own) / len(own) if own else None
    if team is None and local is None:
        raise Unreadable(NO_REWARD)
    parts = {TEAM: team or 0.0, "local": local or 0.0}
    return _finite(weights.team * parts[TEAM] + weights.local * parts["local"], parts)


def chosen(step: Step) -> Candidate:
    """The candidate that was executed. Raises `Unreadable` if the record names none of its own."""
    if not 0 <= step.selected < len(step.candidates):
        raise Unreadable(
            "step whose executed candidate is not there",
            f"{step.selected} of {len(step.candidates)}",
        )
    return step.candidates[step.selected]


def _finite(reward: float, parts: Mapping[str, float]) -> float:
    if not math.isfinite(reward):
        raise Unreadable(NOT_A_NUMBER, ", ".join(f"{k} = {v}" for k, v in parts.items()))
    return reward

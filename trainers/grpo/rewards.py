"""What a candidate, or a whole run, is worth to an agent.

The paper writes r(t, i) = α · team + local with α = 1, and local = Σ c_l · s_l over parts such as
format and legality with Σ c_l = 1 (arXiv 2510.11062, §4 and its appendix). The environments of
`pair` record every part, what the parts of each scheme add up to, and as `total` the reward that
candidates were ranked by; another scheme, or another α, is made of these. An environment that says
no `total` has its parts added up here, each with weight 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from loopline.agents.environments.game import Scheme
from loopline.runtime.config.options import OnlyWith, Option, Options
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.data.samples import AnyCandidate, AnyRun, AnyStep
from loopline.workers.store.rewards import TEAM

LOCAL = "local"
"""Name of the sum of an agent's own parts, alongside a total; without one, every part but the
team's is local."""
TOTAL = "total"
"""Name of the part that is the reward as it was ranked by."""
NO_REWARD = "candidate without a reward"
NO_SCHEME = "candidate without the rewards of that scheme"
NOT_A_NUMBER = "reward that is not a finite number"


def _pays_team(options: Any) -> bool:
    return options.grouping != "at-grpo" or options.reward.scheme in (None, "paper")


class RewardChoice(Options):
    """How reward parts become one reward."""

    panel: ClassVar[str] = "Groups and rewards"

    scheme: Annotated[Scheme | None, Option(default="as recorded; in a loop paper")] = None
    """Reward of an action: paper (team and local parts), dense (the published code's step rewards,
    without paying moves back and forth), sparse (solved or not), or progress (share of the solver's
    distance to the solution that the answer closes)."""
    alpha: Annotated[float, OnlyWith("--scheme paper", _pays_team)] = Field(
        default=1.0, ge=0, le=100
    )
    """Weight of the team's reward in --scheme paper; another one than 1 means that scheme."""

    @property
    def effective_scheme(self) -> Scheme | None:
        """None: rewards are taken as they are."""
        return self.scheme or ("paper" if self.alpha != 1.0 else None)


def candidate_reward(parts: Mapping[str, float], choice: RewardChoice) -> float:
    """Raises `Unreadable` without any part, without those of the scheme, or for a part that is no
    number (a reward function that failed)."""
    if not parts:
        raise Unreadable(NO_REWARD)
    scheme = choice.effective_scheme
    if TOTAL not in parts and scheme in (None, "paper"):
        return _require_finite(choice.alpha * parts.get(TEAM, 0.0) + _sum_other_parts(parts), parts)
    match scheme:
        case None:
            wanted = (TOTAL,)
        case "paper":
            wanted = (TEAM, LOCAL)
        case _:
            wanted = (scheme,)
    missing = [name for name in wanted if name not in parts]
    if missing:
        raise Unreadable(NO_SCHEME, f"{scheme}: no {' and no '.join(missing)}")
    weighted = [(choice.alpha if name == TEAM else 1.0) * parts[name] for name in wanted]
    return _require_finite(math.fsum(weighted), parts)


def run_reward(trajectory: AnyRun, agent: str, choice: RewardChoice) -> float:
    """What a whole run is worth to one of its agents: α · team + its own.

    The team's reward is the run's or, where nobody has set it, that of the last executed candidate
    that has one. The agent's own is the run's for it, if rewards are taken as they are, else the
    mean over its executed candidates. Raises `Unreadable` as `candidate_reward` does.
    """
    executed = [(step, executed_candidate(step)) for step in trajectory.steps if step.candidates]
    team = trajectory.team_reward
    for _, candidate in reversed(executed):
        if team is None:
            team = candidate.reward_parts.get(TEAM)
    agent_reward = trajectory.agent_rewards.get(agent) if choice.effective_scheme is None else None
    if agent_reward is None:
        earned = [
            candidate_reward(parts, choice) if TOTAL in parts else _sum_other_parts(parts)
            for step, candidate in executed
            if step.agent == agent and set(parts := candidate.reward_parts) - {TEAM}
        ]
        agent_reward = math.fsum(earned) / len(earned) if earned else None
    if team is None and agent_reward is None:
        raise Unreadable(NO_REWARD)
    parts = {TEAM: team or 0.0, LOCAL: agent_reward or 0.0}
    return _require_finite(choice.alpha * parts[TEAM] + parts[LOCAL], parts)


def executed_candidate(step: AnyStep) -> AnyCandidate:
    """The candidate that was executed. Raises `Unreadable` if the record names none of its own."""
    if not 0 <= step.selected < len(step.candidates):
        raise Unreadable(
            "step whose executed candidate is not there",
            f"{step.selected} of {len(step.candidates)}",
        )
    return step.candidates[step.selected]


def _sum_other_parts(parts: Mapping[str, float]) -> float:
    return math.fsum(value for name, value in sorted(parts.items()) if name != TEAM)


def _require_finite(reward: float, parts: Mapping[str, float]) -> float:
    if not math.isfinite(reward):
        raise Unreadable(NOT_A_NUMBER, ", ".join(f"{k} = {v}" for k, v in parts.items()))
    return reward

"""Rewards of a candidate, or of an agent in a whole run.

The paper writes r(t, i) = α · team + local with α = 1, and local = Σ c_l · s_l over parts such as
format and legality with Σ c_l = 1 (arXiv 2510.11062, §4 and its appendix). The environments of
`pair` record every part, the sum of the parts in each scheme, and `total`, the reward by which
candidates were ranked; another scheme, or another α, is computed from these. If an environment
records no `total`, its parts are summed here, each with weight 1.

The reward of a whole run of any workflow is the recorded one or, if there is none, that of its
outcome: 1 if the judge of its environment found it solved, 0 if not. A user's function may replace
it, and λ · dollars may be subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from loopline.agents.environments import api_worlds
from loopline.agents.environments.game import Scheme
from loopline.agents.errors import PluginError
from loopline.agents.records import Outcome, Trajectory
from loopline.agents.registry import import_from_here, is_function, load_object
from loopline.runtime.config.options import OnlyWith, Option, Options
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.data.questions import Question, fault
from loopline.trainers.data.samples import AnyCandidate, AnyRun, AnyStep
from loopline.workers.store.rewards import AGENT, TEAM, TURN, Feedback, rewarded_by

LOCAL = "local"
"""Name of the sum of an agent's own parts, if there is a total; without a total, every part except
the team's is local."""
TOTAL = "total"
"""Name of the part that is the reward by which candidates were ranked."""
NO_REWARD = "candidate without a reward"
NO_RUN_REWARD = "run without a reward"
FAILED_FUNCTION = "run for which the reward function failed"
NO_SCHEME = "candidate without the rewards of that scheme"
NOT_A_NUMBER = "reward that is not a finite number"


RewardFunction = Callable[[Trajectory], float | Feedback | None]
"""Reward of a run: a number for the whole team, or rewards of the team, of agents and of turns;
None if it is undecided. The function receives the run as recorded, without a reference answer."""


@cache
def reward_function(path: str) -> RewardFunction:
    """The function at `package.module:function`. Raises `PluginError`."""
    import_from_here()
    return load_object("reward function", path, is_function)


def _compares_runs(options: Any) -> bool:
    return options.grouping != "at-grpo"


def _pays_team(options: Any) -> bool:
    return options.grouping != "at-grpo" or options.reward.scheme in (None, "paper")


class RewardChoice(Options):
    """How reward parts become one reward."""

    panel: ClassVar[str] = "Groups and rewards"

    scheme: Annotated[Scheme | None, Option(default="as recorded; paper in a loop")] = None
    """Reward of an action: paper (team and local parts), dense (the published code's step rewards,
    without paying moves back and forth), sparse (solved or not), or progress (share of the solver's
    distance to the solution that the answer closes)."""
    alpha: Annotated[float, OnlyWith("--scheme paper", _pays_team)] = Field(
        default=1.0, ge=0, le=100
    )
    """Weight of the team's reward in --scheme paper; any value but 1 selects that scheme."""

    function: Annotated[
        str | None,
        Option("reward", metavar="MODULE:FUNCTION", default="as recorded, or the outcome"),
    ] = None
    """Function that rewards a run: it takes the trajectory and returns a number, or rewards of the
    team, of agents and of turns."""
    dollar_weight: Annotated[float, OnlyWith("--grouping trajectory or single", _compares_runs)] = (
        Field(default=0.0, ge=0, le=1e6)
    )
    """Amount subtracted from a run's reward for each dollar that its model calls cost (λ)."""

    overlong_buffer: Annotated[int, Option(metavar="<tokens>")] = Field(default=0, ge=0)
    """Number of tokens before a completion's limit over which its reward falls, by 1 at the limit;
    0 means no penalty (DAPO's soft overlong punishment; goes with --truncated keep)."""

    @field_validator("function")
    @classmethod
    def _names_a_function(cls, path: str | None) -> str | None:
        if path is not None:
            try:
                reward_function(path)
            except PluginError as error:
                raise ValueError(str(error)) from error
        return path

    @property
    def needs_whole_runs(self) -> bool:
        """Whether rewards need more of a run than its samples."""
        return self.function is not None or self.dollar_weight != 0.0

    @property
    def effective_scheme(self) -> Scheme | None:
        """Scheme by which rewards are computed; None: the recorded rewards are used."""
        return self.scheme or ("paper" if self.alpha != 1.0 else None)


def candidate_reward(parts: Mapping[str, float], choice: RewardChoice) -> float:
    """Reward of a candidate with these parts. Raises `Unreadable` without any part, without those
    of the scheme, or for a part that is not a number (a reward function that failed)."""
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


def outcome_reward(trajectory: Trajectory) -> float | None:
    """1 for a solved run, 0 for a failed one; None if it is undecided: a run of a workflow without
    a verifier still has to be judged."""
    match trajectory.outcome:
        case Outcome.SOLVED:
            return 1.0
        case Outcome.FAILED:
            return 0.0
        case _ if trajectory.run.task.environment == api_worlds.ENVIRONMENT:
            return float(not fault(Question(id="", task=trajectory.run.task), trajectory))
        case _:
            return None


def rewarded(trajectory: AnyRun, choice: RewardChoice) -> AnyRun:
    """The run with the rewards to learn from: those of the user's function if one is chosen,
    otherwise the recorded ones, otherwise its outcome. Raises `Unreadable` if the function
    fails."""
    if not isinstance(trajectory, Trajectory):  # a sample has its rewards (`read_samples`)
        return trajectory
    if choice.function is not None:
        return rewarded_by(trajectory, _ask(choice.function, trajectory))
    executed = (executed_candidate(step) for step in trajectory.steps if step.candidates)
    if trajectory.team_reward is not None or trajectory.agent_rewards:
        return trajectory
    if any(candidate.reward_parts for candidate in executed):
        return trajectory
    return trajectory.model_copy(update={"team_reward": outcome_reward(trajectory)})


def _ask(path: str, trajectory: Trajectory) -> Feedback:
    """Call the user's function. Raises `Unreadable`."""
    try:
        value = reward_function(path)(trajectory)
        if not isinstance(value, Feedback):
            value = Feedback(team=None if value is None else float(value))
    except Exception as error:
        raise Unreadable(FAILED_FUNCTION, f"{path}: {type(error).__name__}: {error}") from error
    return value


def overlong_penalty(length: int, limit: int, buffer: int) -> float:
    """0 up to `limit` − `buffer` tokens, then falling linearly to −1 at `limit` (DAPO, Yu et al.
    2025, arXiv:2503.14476, eq. 13)."""
    over = length - (limit - buffer)
    return 0.0 if buffer == 0 or over <= 0 else -min(over / buffer, 1.0)


def length_penalty(candidates: Iterable[AnyCandidate], choice: RewardChoice) -> float:
    """Largest penalty among the completions that an agent wrote for one reward, each by its own
    limit; 0 or negative."""
    if choice.overlong_buffer == 0:
        return 0.0
    return min(
        (
            overlong_penalty(len(call.output_ids), call.sampling.max_tokens, choice.overlong_buffer)
            for candidate in candidates
            for call in candidate.calls
        ),
        default=0.0,
    )


def dollars_of(trajectory: Trajectory) -> float:
    """Cost of all model calls of a run in US dollars, by the prices of their pools."""
    calls = (call for step in trajectory.steps for call in step.calls)
    return sum(call.cost_micro_dollars for call in calls) / 1e6


def turn_reward(parts: Mapping[str, float], choice: RewardChoice) -> float | None:
    """Reward of an executed candidate by itself, without the team's share; None if none is
    recorded."""
    scheme = choice.effective_scheme
    if TURN in parts:
        return parts[TURN]
    if scheme not in (None, "paper"):
        return parts.get(scheme)
    if TOTAL in parts:
        return parts.get(LOCAL, parts[TOTAL])
    parts_of_turn = [value for name, value in sorted(parts.items()) if name not in (TEAM, AGENT)]
    return math.fsum(parts_of_turn) if parts_of_turn else None


def run_reward(trajectory: AnyRun, agent: str, choice: RewardChoice) -> float:
    """Reward of one of a run's agents: α · team + its own − λ · dollars.

    The team's reward is the run's or, if none is set, that of the last executed candidate that has
    one. The agent's own reward is the one that the run records for it, if recorded rewards are
    used, and otherwise the mean over its executed candidates. Raises `Unreadable` as
    `candidate_reward` does.
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
        raise Unreadable(
            NO_RUN_REWARD,
            f"it ended as {trajectory.outcome} and was not judged: post a reward (--reward-from "
            "feedback), or name a function (--reward)",
        )
    parts = {TEAM: team or 0.0, LOCAL: agent_reward or 0.0}
    paid = 0.0
    if choice.dollar_weight:
        assert isinstance(trajectory, Trajectory), "calls of a sample have no costs"
        paid = choice.dollar_weight * dollars_of(trajectory)
    return _require_finite(choice.alpha * parts[TEAM] + parts[LOCAL] - paid, parts)


def executed_candidate(step: AnyStep) -> AnyCandidate:
    """The candidate that was executed. Raises `Unreadable` if the record's index is out of
    range."""
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

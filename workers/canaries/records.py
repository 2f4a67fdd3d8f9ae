"""The records of runs since a canary started, reduced to the fields that a comparison needs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from loopline.agents.errors import AgentError
from loopline.agents.records import Outcome, Trajectory
from loopline.agents.rewards import Reward
from loopline.agents.roles.escalation import replacements
from loopline.agents.router.features import comparable_answer
from loopline.agents.workflows import agents_of, policy_of
from loopline.agents.workflows.cascade import is_audited
from loopline.bus.canaries import SHADOW_TAG
from loopline.bus.policies import split_pin
from loopline.workers.store.recent import RecentRuns
from loopline.workers.store.rewards import Feedback, own_targets

ScoreSource = Literal["feedback", "outcome", "audit", "ladder", "serving answer"]
"""Source of a run's score: a posted reward; the run's outcome, or its environment's reward; the big
model of an audited cascade; the cascade's own ladder; for a shadow run, a comparison with the
answer of its original run, whose score is known."""


@dataclass(frozen=True)
class RunRecord:
    """One finished run."""

    run_id: str
    targets: tuple[str, ...]
    """Targets by which rewards refer to the run."""
    ended: float
    answer: str | None
    """Answer in normalized form, so that equal answers are equal texts; None without an answer."""
    score: float | None
    """Score from 0 to 1, without posted rewards; None if unknown."""
    scored_by: ScoreSource
    micro_dollars: int
    tokens: int
    versions: Mapping[str, frozenset[int]]
    """Policy → which of its versions answered."""
    pinned: frozenset[str]
    """Policies for which the run requests a specific version."""
    shadow_of: str | None
    unanswered: frozenset[str] = frozenset()
    """Policies of the run's agents that made none of its calls, if the run ended in an error or at
    its deadline: the intended version may be the reason."""


@dataclass(frozen=True)
class Scored:
    """The score of a run, and the time at which it became known."""

    score: float
    source: ScoreSource
    at: float
    """Unix seconds."""


def record_of(trajectory: Trajectory) -> RunRecord:
    """Return the part of a trajectory that a comparison needs."""
    run = trajectory.run
    versions: dict[str, set[int]] = {}
    for step in trajectory.steps:
        try:
            name, _ = split_pin(policy_of(run, step.agent))
        except AgentError:
            continue
        replaced = replacements(step)
        versions.setdefault(name, set()).update(
            call.policy.version for at, call in enumerate(step.calls) if at not in replaced
        )
    pins = (split_pin(policy) for policy in run.policies.values())
    calls = [call for step in trajectory.steps for call in step.calls]
    score, source = _own_score(trajectory)
    answer = trajectory.answer
    return RunRecord(
        run_id=run.id,
        targets=own_targets(run),
        ended=trajectory.ended,
        answer=None if answer is None else _short(comparable_answer(answer)),
        score=score,
        scored_by=source,
        micro_dollars=sum(call.cost_micro_dollars for call in calls),
        tokens=sum(call.usage.prompt + call.usage.completion for call in calls),
        versions={name: frozenset(numbers) for name, numbers in versions.items()},
        pinned=frozenset(name for name, version in pins if version is not None),
        shadow_of=run.tags.get(SHADOW_TAG),
        unanswered=_unanswered(trajectory, versions),
    )


def _unanswered(trajectory: Trajectory, versions: Mapping[str, set[int]]) -> frozenset[str]:
    if trajectory.outcome not in (Outcome.ERROR, Outcome.DEADLINE):
        return frozenset()
    run = trajectory.run
    try:
        agents = agents_of(run.workflow, run.task.environment, run.options)
        policies = {split_pin(policy_of(run, agent))[0] for agent in agents}
    except AgentError:
        return frozenset()
    return frozenset(name for name in policies if not versions.get(name))


def _own_score(trajectory: Trajectory) -> tuple[float | None, ScoreSource]:
    match trajectory.outcome:
        case Outcome.SOLVED:
            return 1.0, "outcome"
        case Outcome.CANCELLED:
            return None, "outcome"
        case Outcome.ANSWERED:
            if trajectory.team_reward is not None:
                return _clamp(trajectory.team_reward), "outcome"
            return _cascade_score(trajectory)
        case _:
            return 0.0, "outcome"


def _cascade_score(trajectory: Trajectory) -> tuple[float | None, ScoreSource]:
    """Score of the small model's answer, with its source; None outside a cascade."""
    steps = {step.agent: step for step in trajectory.steps if step.calls}
    if trajectory.run.workflow != "cascade" or "first" not in steps:
        return None, "ladder"
    first = steps["first"].decision
    if is_audited(trajectory.run) and "solo" in steps and first.kind == "answer":
        small, big = str(first.data.get("answer", "")), trajectory.answer or ""
        return float(comparable_answer(small) == comparable_answer(big)), "audit"
    return float(first.kind == "answer"), "ladder"


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def _short(text: str) -> str:
    """Replace a long answer by its hash, which is enough to compare answers."""
    return text if len(text) <= 64 else hashlib.sha256(text.encode()).hexdigest()


def scores_of(recent: RecentRuns[RunRecord]) -> dict[str, Scored]:
    """Scores by run id, for all runs that have one."""
    posted = recent.posted
    by_target = posted.of_target()
    times: dict[str, float] = {}
    for recorded in posted.rewards:
        target = recorded.reward.target
        times[target] = max(times.get(target, 0.0), recorded.order.milliseconds / 1000)
    scored: dict[str, Scored] = {}
    for run_id, record in recent.runs.items():
        score = score_of(record, by_target, times)
        if score is not None:
            scored[run_id] = score
    return scored


def score_of(
    record: RunRecord, rewards: Mapping[str, Iterable[Reward]], times: Mapping[str, float]
) -> Scored | None:
    """Score of a run, from posted rewards if there are any, else from the way it ended."""
    posted = [reward for target in record.targets for reward in rewards.get(target, ())]
    team = Feedback.of(posted).team
    if team is not None:
        at = max((times.get(target, 0.0) for target in record.targets), default=0.0)
        return Scored(_clamp(team), "feedback", max(at, record.ended))
    if record.score is None:
        return None
    return Scored(record.score, record.scored_by, record.ended)

"""Reasoner and tool user on one problem of competition mathematics."""

from __future__ import annotations

from loopline.agents.environments.math_team.team import (
    ENVIRONMENT,
    MEMBERS,
    Facts,
    MathInstance,
    MathProblem,
    MathQuestion,
    MathSetting,
    Member,
    Turn,
    done,
    observe,
    program_answer,
    reasoner_rewards,
    reasoning_answer,
    team_answer,
    tool_rewards,
    verdict,
)

__all__ = [
    "ENVIRONMENT", "MEMBERS", "Facts", "MathInstance", "MathProblem", "MathQuestion", "MathSetting",
    "Member", "Turn", "done", "observe", "program_answer", "reasoner_rewards", "reasoning_answer",
    "team_answer", "tool_rewards", "verdict",
]  # fmt: skip

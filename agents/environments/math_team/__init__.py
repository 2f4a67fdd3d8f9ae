"""Reasoner and tool user on one problem of competition mathematics."""

from __future__ import annotations

from agents.environments.math_team.team import (
    MEMBERS,
    Equal,
    MathSetting,
    Member,
    Turn,
    agreed,
    done,
    observe,
    program_answer,
    reasoner_rewards,
    reasoning_answer,
    solved,
    team_answer,
    tool_rewards,
)

__all__ = [
    "MEMBERS", "Equal", "MathSetting", "Member", "Turn", "agreed", "done", "observe",
    "program_answer", "reasoner_rewards", "reasoning_answer", "solved", "team_answer",
    "tool_rewards",
]  # fmt: skip

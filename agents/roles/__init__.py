"""Roles: what an agent does in its turn. See `loopline.agents.roles.protocol` for how to add
one."""

from __future__ import annotations

from typing import TypeGuard

from loopline.agents.errors import PluginError
from loopline.agents.prompts import Prompt
from loopline.agents.registry import Registry
from loopline.agents.roles.agent import Agent
from loopline.agents.roles.chat import Chat
from loopline.agents.roles.completion import Completion
from loopline.agents.roles.embeddings import Embeddings
from loopline.agents.roles.first import First
from loopline.agents.roles.pair.code_team import Coder, UnitTester
from loopline.agents.roles.pair.math_team import Reasoner, ToolUser
from loopline.agents.roles.pair.player import PlayerRole
from loopline.agents.roles.planner import Planner
from loopline.agents.roles.protocol import Role, StepContext, StepResult
from loopline.agents.roles.solo import Solo
from loopline.agents.roles.subtask import Expert, SmallSolver
from loopline.agents.roles.umi.roles import UmiCaller, UmiPlanner, UmiSummarizer
from loopline.agents.roles.umi.single import UmiSingle

__all__ = ["Role", "StepContext", "StepResult", "all_prompts", "roles"]


def _is_role(item: object) -> TypeGuard[Role]:
    return isinstance(item, Role) and not isinstance(item, type)


roles: Registry[Role] = Registry("role", "loopline.roles", _is_role)
"""Every role that a role worker can take."""

roles.register(Agent())
roles.register(Planner())
roles.register(SmallSolver())
roles.register(Expert())
roles.register(First())
roles.register(Solo())
roles.register(UmiPlanner())
roles.register(UmiCaller())
roles.register(UmiSummarizer())
roles.register(UmiSingle())
roles.register(Completion())
roles.register(Chat())
roles.register(Embeddings())
roles.register(PlayerRole())
roles.register(Coder())
roles.register(UnitTester())
roles.register(Reasoner())
roles.register(ToolUser())


def all_prompts() -> dict[str, Prompt]:
    """Prompt file → shipped prompt, for all roles. A plug-in that cannot be loaded should only
    affect the run that uses it, so its prompts are left out."""
    prompts: dict[str, Prompt] = {}
    for name in roles.names():
        try:
            role = roles.get(name)
        except PluginError:
            continue
        prompts.update({prompt.file: prompt for prompt in role.prompts})
    return prompts

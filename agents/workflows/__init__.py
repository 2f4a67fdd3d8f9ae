"""Workflows decide which role is next. `loopline.agents.workflows.routing` explains how to add
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from loopline.agents.errors import PluginError, UnknownName
from loopline.agents.payloads import ACTING_ROLES
from loopline.agents.prompts import Prompt, parse_replacement_prompt
from loopline.agents.records import JsonObject, Run, Trajectory
from loopline.agents.registry import Registry
from loopline.agents.roles import roles
from loopline.agents.workflows.agent import AgentWorkflow
from loopline.agents.workflows.cascade import CascadeWorkflow
from loopline.agents.workflows.delegate import DelegateWorkflow
from loopline.agents.workflows.one_step import ChatWorkflow, CompletionWorkflow, EmbeddingsWorkflow
from loopline.agents.workflows.pair import PairWorkflow
from loopline.agents.workflows.routing import (
    MAX_TURNS,
    Answering,
    Arrive,
    Assembling,
    ChoosingPrompts,
    Continue,
    Fanout,
    Finish,
    Handoff,
    Honouring,
    NamingTools,
    Options,
    Playing,
    Rewarding,
    Routing,
    Wait,
    Workflow,
    capability,
    parse_options,
)
from loopline.agents.workflows.solo import SoloWorkflow
from loopline.agents.workflows.team import NamedTeam, TeamWorkflow
from loopline.agents.workflows.umi import UmiWorkflow
from loopline.agents.workflows.umi_single import UmiSingleWorkflow

__all__ = [
    "MAX_TURNS",
    "Answering",
    "Arrive",
    "Assembling",
    "ChoosingPrompts",
    "Continue",
    "Fanout",
    "Finish",
    "Handoff",
    "Honouring",
    "NamedTeam",
    "NamingTools",
    "Options",
    "Playing",
    "Rewarding",
    "Routing",
    "TeamWorkflow",
    "Wait",
    "Workflow",
    "add_rewards",
    "agents_of",
    "capability",
    "offers_tools",
    "parse_options",
    "policies_for",
    "policy_of",
    "prompt_hashes",
    "prompts_of",
    "serving_role",
    "workflows",
]


def _is_workflow(item: object) -> TypeGuard[Workflow]:
    return isinstance(item, Workflow) and not isinstance(item, type)


workflows: Registry[Workflow] = Registry("workflow", "loopline.workflows", _is_workflow)
"""Every workflow that a run can specify."""

workflows.register(AgentWorkflow())
workflows.register(TeamWorkflow())
workflows.register(SoloWorkflow())
workflows.register(DelegateWorkflow())
workflows.register(CascadeWorkflow())
workflows.register(UmiWorkflow())
workflows.register(UmiSingleWorkflow())
workflows.register(CompletionWorkflow())
workflows.register(ChatWorkflow())
workflows.register(EmbeddingsWorkflow())
workflows.register(PairWorkflow())


def offers_tools(workflow: str) -> bool:
    """Whether the workflow's models may call the tools that a task names. Raises `UnknownName`."""
    return getattr(workflows.get(workflow), "offers_tools", False) is True


def agents_of(
    workflow: str, environment: str | None = None, options: JsonObject | None = None
) -> dict[str, str]:
    """Default policy of each agent of a workflow, and of an environment's and a run's options if
    specified, for agents to which a run assigns none; "" if there is no default. Raises
    `UnknownName`, `PluginError` and `InvalidOptions`."""
    definition = workflows.get(workflow)
    players: Mapping[str, str] = {}
    if environment is not None and (playing := capability(definition, Playing)):
        players = playing.players(environment)
    if options is not None and (assembling := capability(definition, Assembling)):
        players = assembling.agents_in(options)
    policies = {**definition.default_policies, **players}
    others = {
        role: "" for role in definition.roles if role not in ACTING_ROLES and role not in policies
    }
    return {**policies, **others}


def serving_role(workflow: str, agent: str) -> str:
    """The role that takes an agent's turns. Raises `UnknownName`."""
    role_names = workflows.get(workflow).roles
    if agent in role_names:
        return agent
    return next((role for role in role_names if role in ACTING_ROLES), agent)


def prompts_of(
    workflow: str, environment: str | None = None, options: JsonObject | None = None
) -> dict[str, Prompt]:
    """Shipped prompts by file: those of all roles of a workflow, as the options select them, and of
    an environment's agents if one is specified. Raises `UnknownName`, `InvalidOptions` and
    `PluginError`."""
    definition = workflows.get(workflow)
    prompts = [prompt for role in definition.roles for prompt in roles.get(role).prompts]
    if choosing := capability(definition, ChoosingPrompts):
        prompts += choosing.prompts_in(options or {})
    if environment is not None and (playing := capability(definition, Playing)):
        prompts += playing.player_prompts(environment)
    return {prompt.file: prompt for prompt in prompts}


def prompt_hashes(
    workflow: str,
    files: Mapping[str, str] | None = None,
    environment: str | None = None,
    options: JsonObject | None = None,
) -> dict[str, str]:
    """Content hashes by prompt file, for all roles of a workflow and all agents of an environment:
    the value of `Run.prompts`. `files`: the value of `Run.prompt_files`.

    Raises `UnknownName` for a file of another workflow, `InvalidOptions`, `InvalidPrompt` and
    `PluginError`.
    """
    prompts = prompts_of(workflow, environment, options)
    for file, content in (files or {}).items():
        if file not in prompts:
            raise UnknownName(f"prompt of workflow {workflow!r} called", file, prompts)
        prompts[file] = parse_replacement_prompt(
            content, prompts[file].name, origin=f"the run's own {file}"
        )
    return {file: prompt.hash for file, prompt in prompts.items()}


def policies_for(
    workflow: str,
    overrides: Mapping[str, str] | None = None,
    environment: str | None = None,
    options: JsonObject | None = None,
) -> dict[str, str]:
    """Policies of a run by agent: the defaults of the workflow, the environment and the run's
    options, overridden by `overrides`.

    Raises `UnknownName` for an agent that none of them has, and `PluginError`.
    """
    policies = agents_of(workflow, environment, options)
    for agent in overrides or {}:
        if agent not in policies:
            raise UnknownName(f"role of workflow {workflow!r} called", agent, policies)
    defaults = {agent: policy for agent, policy in policies.items() if policy}
    return {**defaults, **(overrides or {})}


def policy_of(run: Run, role: str) -> str:
    """The policy that serves a role in this run. Raises `UnknownName` if there is none."""
    policy = run.policies.get(role)
    if policy is None:
        policy = agents_of(run.workflow, run.task.environment, run.options).get(role)
    if not policy:
        raise UnknownName(f"policy in run {run.id} for role", role, run.policies)
    return policy


def add_rewards(trajectory: Trajectory) -> Trajectory:
    """The trajectory with its workflow's rewards; unchanged if the workflow assigns none.

    It is also unchanged if the workflow is not installed: a process that records runs need not have
    every package that executes them, and a record without rewards is better than none.
    """
    try:
        workflow = workflows.get(trajectory.run.workflow)
    except (UnknownName, PluginError):
        return trajectory
    rewarding = capability(workflow, Rewarding)
    return trajectory if rewarding is None else rewarding.rewarded(trajectory)

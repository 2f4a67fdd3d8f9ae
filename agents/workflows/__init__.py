"""Workflows: who is next after each decision. `loopline.agents.workflows.routing` says how to add
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from loopline.agents.errors import PluginError, UnknownName
from loopline.agents.prompts import Prompt, replacement
from loopline.agents.records import Run, Trajectory
from loopline.agents.registry import Registry
from loopline.agents.roles import roles
from loopline.agents.workflows.completion import CompletionWorkflow
from loopline.agents.workflows.delegate import DelegateWorkflow
from loopline.agents.workflows.pair import PairWorkflow
from loopline.agents.workflows.routing import (
    MAX_TURNS,
    Arrive,
    Continue,
    Fanout,
    Finish,
    Handoff,
    Options,
    Rewarding,
    Routing,
    Workflow,
    parse_options,
)
from loopline.agents.workflows.solo import SoloWorkflow
from loopline.agents.workflows.umi import UmiWorkflow
from loopline.agents.workflows.umi_single import UmiSingleWorkflow

__all__ = [
    "MAX_TURNS",
    "Arrive",
    "Continue",
    "Fanout",
    "Finish",
    "Handoff",
    "Options",
    "Rewarding",
    "Routing",
    "Workflow",
    "offers_tools",
    "parse_options",
    "policies_for",
    "policy_of",
    "prompt_hashes",
    "prompts_of",
    "rewarded",
    "workflows",
]


def _is_workflow(item: object) -> TypeGuard[Workflow]:
    return isinstance(item, Workflow) and not isinstance(item, type)


workflows: Registry[Workflow] = Registry("workflow", "loopline.workflows", _is_workflow)
"""Every workflow that a run can name."""

workflows.register(SoloWorkflow())
workflows.register(DelegateWorkflow())
workflows.register(UmiWorkflow())
workflows.register(UmiSingleWorkflow())
workflows.register(CompletionWorkflow())
workflows.register(PairWorkflow())


def offers_tools(workflow: str) -> bool:
    """Whether the workflow's models may call the tools that a task names. Raises `UnknownName`."""
    return getattr(workflows.get(workflow), "offers_tools", False) is True


def prompts_of(workflow: str) -> dict[str, Prompt]:
    """Prompt file → shipped prompt, of all roles of a workflow."""
    return {
        prompt.file: prompt
        for role in workflows.get(workflow).roles
        for prompt in roles.get(role).prompts
    }


def prompt_hashes(workflow: str, files: Mapping[str, str] | None = None) -> dict[str, str]:
    """Prompt file → content hash, of all roles of a workflow: what `Run.prompts` holds. `files` are
    `Run.prompt_files`.

    Raises `UnknownName` for a file of another workflow, and `InvalidPrompt`.
    """
    prompts = prompts_of(workflow)
    for file, content in (files or {}).items():
        if file not in prompts:
            raise UnknownName(f"prompt of workflow {workflow!r} called", file, prompts)
        prompts[file] = replacement(content, prompts[file].name, origin=f"the run's own {file}")
    return {file: prompt.hash for file, prompt in prompts.items()}


def policies_for(workflow: str, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Role → policy for a run: the workflow's defaults, overridden by `chosen`.

    Raises `UnknownName` for a role that the workflow does not have.
    """
    found = workflows.get(workflow)
    for role in chosen or {}:
        if role not in found.roles:
            raise UnknownName(f"role of workflow {workflow!r} called", role, found.roles)
    return {**found.default_policies, **(chosen or {})}


def policy_of(run: Run, role: str) -> str:
    """The policy that serves a role in this run. Raises `UnknownName` if nobody said which."""
    policy = run.policies.get(role) or workflows.get(run.workflow).default_policies.get(role)
    if policy is None:
        raise UnknownName(f"policy in run {run.id} for role", role, run.policies)
    return policy


def rewarded(trajectory: Trajectory) -> Trajectory:
    """The trajectory with the rewards that its workflow gives; as it is where it gives none.

    Also where its workflow is not at hand: whoever records runs need not have every package that
    plays them, and a record without rewards is better than none.
    """
    try:
        workflow = workflows.get(trajectory.run.workflow)
    except (UnknownName, PluginError):
        return trajectory
    return workflow.rewarded(trajectory) if isinstance(workflow, Rewarding) else trajectory

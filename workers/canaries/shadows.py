"""Shadow runs: a finished run played once more, with a canary in the place of one policy.

Its caller gets nothing of it, its cost is on nobody's account, and it has no tools that do
something to the world: a run that offers such tools has no shadow. Its id follows from the run's,
so it is admitted once, however often and by anyone.
"""

from __future__ import annotations

from loopline.agents.errors import AgentError
from loopline.agents.records import Run
from loopline.agents.tools import tools
from loopline.agents.workflows import NamingTools, agents_of, capability, policy_of, workflows
from loopline.bus import Bus
from loopline.bus.canaries import CANARY_TAG, SHADOW_TAG, Canary, shadow_run_id
from loopline.bus.policies import split_pin
from loopline.workers.admission import admission_of


class NoShadow(Exception):
    """The run can't be played once more; says why."""


def shadow_of(run: Run, policy: str, canary: Canary, now: float) -> Run:
    """The run that repeats this one. Raises NoShadow."""
    try:
        agents = [*agents_of(run.workflow, run.task.environment, run.options)]
        policies = {agent: policy_of(run, agent) for agent in agents}
        effects = _tools_with_effects(run)
    except AgentError as error:
        raise NoShadow(str(error)) from error
    if effects:
        raise NoShadow(f"its tools may do something to the world: {', '.join(effects)[:200]}")
    pinned = f"{policy}@{canary.version}"
    return run.model_copy(
        update={
            "id": shadow_run_id(run.id, policy, canary),
            "policies": {
                agent: pinned if split_pin(served_by)[0] == policy else served_by
                for agent, served_by in policies.items()
            },
            "created": now,
            "deadline": now + run.budget.seconds,
            "stream": False,
            "tags": {SHADOW_TAG: run.id, CANARY_TAG: pinned},
            "webhook": None,
            "account": "",
        }
    )


def _tools_with_effects(run: Run) -> list[str]:
    """Tools that the run may call and that are not known to be free of effects."""
    workflow = workflows.get(run.workflow)
    naming = capability(workflow, NamingTools)
    named = [*(naming.tools_in(run.options) if naming else ())]
    of_task = run.task.instance.get("tools", [])
    named += of_task if isinstance(of_task, list) else []
    return [
        str(name)
        for name in named
        if not isinstance(name, str)
        or name not in tools.names()
        or tools.get(name).effect != "none"
    ]


async def admit_shadow(bus: Bus, shadow: Run) -> None:
    """Admit it, unless it was admitted before. Raises NoShadow, and as `Bus.admit` does."""
    try:
        handoffs = workflows.get(shadow.workflow).first(shadow)
    except AgentError as error:
        raise NoShadow(str(error)) from error
    await bus.admit(admission_of(shadow, handoffs))

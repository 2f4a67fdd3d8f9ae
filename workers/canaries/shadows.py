"""Shadow runs: a finished run is replayed with a canary in place of one policy.

Its caller does not see it, no account pays for it, and it has no tools with side effects: a run
that offers such tools has no shadow. A shadow's id follows from the run's id, so it is admitted
once, no matter how often and by which process it is requested.
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
    """The run can't be replayed; the message says why."""


def shadow_of(run: Run, policy: str, canary: Canary, now: float) -> Run:
    """The run that repeats this one. Raises NoShadow."""
    try:
        agents = [*agents_of(run.workflow, run.task.environment, run.options)]
        policies = {agent: policy_of(run, agent) for agent in agents}
        effects = _tools_with_effects(run)
    except AgentError as error:
        raise NoShadow(str(error)) from error
    if effects:
        raise NoShadow(f"its tools may have side effects: {', '.join(effects)[:200]}")
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
    """Tools that the run may call and that are not known to be free of side effects."""
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
    """Admit the shadow run, unless it was admitted before. Raises as `Bus.admit`, and NoShadow."""
    try:
        handoffs = workflows.get(shadow.workflow).first(shadow)
    except AgentError as error:
        raise NoShadow(str(error)) from error
    await bus.admit(admission_of(shadow, handoffs))

"""Admits runs: of clients, of schedules, and those that try a version of a policy.

What the bus holds for it follows from the run alone: which budgets it shares, whose turn it takes,
and that its prompts are where a worker of another version finds them.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.records import Run, Step
from loopline.agents.workflows import Handoff, prompts_of
from loopline.bus import TRACEPARENT_TAG, Admission, Bus, ContentWriter, Join, Limits, Scope
from loopline.bus.budgets import DAY
from loopline.bus.tenants import ANYBODY, Tenant
from loopline.workers.routing import outgoing

TENANT_TAG = "tenant"
"""Names the tenant that a run belongs to; of a run by HTTP, that of its caller's key."""
THREAD_TAGS = ("thread", "session")
"""Name the conversation that it belongs to: an app's, or a session of the gateway."""
BUDGET_TAG = "budget"
"""Names a budget that holds for runs with the same name, once for all."""
NO_LIMITS = Limits()


def admission_of(
    run: Run,
    handoffs: Sequence[Handoff],
    *,
    key_limits: Limits = NO_LIMITS,
    tenant: Tenant | None = None,
    notify: str = "",
    journal: Sequence[Step] = (),
    joins: tuple[Join, ...] = (),
    delay: float = 0.0,
    idempotency: str = "",
) -> Admission:
    """`key_limits` are those of the day of the run's account; without a `tenant` it is the run's
    own, as the bus has it."""
    return Admission(
        run_id=run.id,
        run=run.model_dump_json().encode(),
        deadline=run.deadline,
        messages=tuple(outgoing(run, handoff) for handoff in handoffs),
        tokens_limit=run.budget.tokens or 0,
        micro_dollars_limit=run.budget.micro_dollars or 0,
        notify=notify,
        account=run.account,
        scopes=scopes_of(run, key_limits),
        tenant=tenant or Tenant(tenant_name(run)),
        announce=run.webhook is not None,
        journal=tuple(step.model_dump_json().encode() for step in journal),
        joins=joins,
        delay=delay,
        idempotency=idempotency,
        record=run,
    )


def scopes_of(run: Run, key_limits: Limits = NO_LIMITS) -> tuple[Scope, ...]:
    """What a run belongs to."""
    scopes = [Scope(DAY)]
    if run.account:
        scopes.append(Scope(f"key:{run.account}", key_limits))
    for name, value in run.tags.items():
        if name == TENANT_TAG:
            scopes.append(Scope(f"tenant:{value}"))
        elif name in (*THREAD_TAGS, BUDGET_TAG):
            kind = BUDGET_TAG if name == BUDGET_TAG else "thread"
            # Callers share neither sessions nor budgets.
            scopes.append(
                Scope(f"{kind}:{run.account}/{value}" if run.account else f"{kind}:{value}")
            )
        elif name != TRACEPARENT_TAG:
            scopes.append(Scope(f"tag:{name}={value}"))
    return tuple(scopes)


def tenant_name(run: Run) -> str:
    """Name of the tenant whose turns a run takes: its `tenant` tag, else its account, else
    `ANYBODY`."""
    return run.tags.get(TENANT_TAG, "") or run.account or ANYBODY


async def publish_prompts(bus: Bus, writer: ContentWriter, run: Run) -> None:
    """Put what a run's prompts say on the bus before the run is admitted, unless the run brings
    them itself or they were put there a moment ago. Raises `BusUnavailable`."""
    shared = {file: digest for file, digest in run.prompts.items() if file not in run.prompt_files}
    if not writer.missing(shared):
        return
    prompts = prompts_of(run.workflow, run.task.environment, run.options)
    contents = {
        prompt.hash: prompt.content
        for file, prompt in prompts.items()
        if shared.get(file) == prompt.hash and prompt.content
    }
    await writer.write(bus, contents)

"""Admits runs of clients and schedules, and runs that try a version of a policy.

Everything that the bus stores for a run's admission follows from the run: the budgets that it
shares, the tenant whose turns it takes, and its prompts, which a worker of another version finds on
the bus.
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
"""Name of the tag with a run's tenant; over HTTP, the tenant of the caller's key."""
THREAD_TAGS = ("thread", "session")
"""Names of the tags with a run's conversation: an app's thread, or a session of the gateway."""
BUDGET_TAG = "budget"
"""Name of the tag with a budget that all runs with the same value share, without a time limit."""
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
    """`key_limits` are the daily limits of the run's account. Without a `tenant`, the run's own
    tenant applies, as stored on the bus."""
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
    """Scopes whose budgets the run shares."""
    scopes = [Scope(DAY)]
    if run.account:
        scopes.append(Scope(f"key:{run.account}", key_limits))
    for name, value in run.tags.items():
        if name == TENANT_TAG:
            scopes.append(Scope(f"tenant:{value}"))
        elif name in (*THREAD_TAGS, BUDGET_TAG):
            kind = BUDGET_TAG if name == BUDGET_TAG else "thread"
            # Different callers never share sessions or budgets.
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
    """Put the contents of a run's prompts on the bus before the run is admitted, unless the run
    contains them itself or they were put there a moment ago. Raises `BusUnavailable`."""
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

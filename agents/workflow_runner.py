"""Run a workflow to its end in this process, without a bus.

Deterministic: steps are taken one at a time, oldest hand-over first, and time stands still unless
`clock` is passed. For tests, replays and offline sampling; there are no deadlines and no budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

from loopline.agents.errors import NoRoute, UnknownName
from loopline.agents.frontier import Frontier, frontier_of
from loopline.agents.payloads import WakeUp
from loopline.agents.protocols import Host
from loopline.agents.records import Run, Step, Trajectory
from loopline.agents.stepping import take_step
from loopline.agents.workflows import add_rewards
from loopline.agents.workflows.routing import Handoff

MAX_STEPS = 2_000
"""A run with more steps is in a loop."""

Hosts = Mapping[str, Host] | Callable[[Handoff], Host]
"""A host per agent, or per hand-over."""

WORKER = "local"


async def run_locally(
    run: Run,
    hosts: Hosts,
    *,
    journal: Sequence[Step] = (),
    pick: Callable[[Sequence[Handoff]], int] | None = None,
    clock: Callable[[], float] | None = None,
    signals: Mapping[str, JsonValue] | None = None,
) -> Trajectory:
    """Run to the end, from the start or from the state that `journal` leads to.

    `pick` selects which waiting hand-over is answered next (an index), to try other commit orders.
    A wait ends at once: with the value in `signals`, or else as if it had expired. Raises a
    retryable `RequestFailed` like the host, and `NoRoute` for a workflow that does not terminate.
    """
    now = clock or (lambda: run.created)
    steps = tuple(journal)
    frontier = frontier_of(run, steps)
    while frontier.finish is None:
        for wait in frontier.waits if not frontier.waiting else ():
            frontier.wake(wait.handoff(_wake_up(wait.signal, signals or {}, now())))
        waiting = frontier.waiting
        if not waiting:
            raise NoRoute(
                f"workflow {run.workflow!r} stopped before its end: {_describe_frontier(frontier)}"
            )
        if len(steps) >= MAX_STEPS:
            raise NoRoute(f"workflow {run.workflow!r} did not end within {MAX_STEPS} steps")
        handoff = waiting[pick(waiting) if pick else 0]
        step_result = await take_step(
            run, steps, handoff, _host(hosts, handoff), worker=WORKER, clock=now
        )
        frontier.commit(step_result.step, step_result.routing)
        steps = (*steps, step_result.step)
    return add_rewards(
        Trajectory(
            run=run,
            steps=steps,
            outcome=frontier.finish.outcome,
            answer=frontier.finish.answer,
            reason=frontier.finish.reason,
            ended=now(),
        )
    )


def _wake_up(signal: str, signals: Mapping[str, JsonValue], at: float) -> WakeUp:
    if signal in signals:
        return WakeUp(kind="signalled", at=at, value=signals[signal])
    return WakeUp(kind="expired", at=at)


def _host(hosts: Hosts, handoff: Handoff) -> Host:
    if callable(hosts):
        return hosts(handoff)
    if handoff.agent not in hosts:
        raise UnknownName("host for agent", handoff.agent, hosts)
    return hosts[handoff.agent]


def _describe_frontier(frontier: Frontier) -> str:
    joins = frontier.joins
    return f"open joins: {', '.join(joins)}" if joins else "nothing is waiting"

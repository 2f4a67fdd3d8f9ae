"""Tells the user what a run is waiting for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from loopline.agents.records import Run
from loopline.agents.workflows import policy_of, serving_role
from loopline.agents.workflows.pair import PairWorkflow, needs_judge, team_of
from loopline.bus import OUTAGE, Bus, live_workers, pool_of
from loopline.runtime.client.deployment import Deployment
from loopline.runtime.client.waiting import describe_waits
from loopline.runtime.observe.log_files import last_error_line
from loopline.runtime.observe.status import supervisor_status
from loopline.workers.messages import JUDGE_STREAM, TOOL_STREAM, inference_stream, role_stream

LOOK_SECONDS = 2.0
"""Seconds between two checks: the interval at which workers announce their presence."""


async def report_blockers(
    bus: Bus, run: Run, deployment: Deployment, say: Callable[[str], None]
) -> None:
    """Print each cause that delays the run when it appears, until cancelled."""
    previous_lines: list[str] = []
    while True:
        with contextlib.suppress(*OUTAGE):  # the client itself reports outages
            lines = await list_blockers(bus, run, deployment)
            for line in lines:
                if line not in previous_lines:
                    say(line)
            previous_lines = lines
        await asyncio.sleep(LOOK_SECONDS)


async def list_blockers(bus: Bus, run: Run, deployment: Deployment) -> list[str]:
    """Return one line per cause: roles, pools, the judge and tools that no worker serves, `broken`
    workers of this machine, and why the last step is retried."""
    ready = {
        stream
        for worker in await live_workers(bus)
        if worker.state == "ready"
        for stream in worker.streams
    }
    playing = run.workflow == PairWorkflow.name
    acting = team_of(run) if playing else run.policies
    serving = dict.fromkeys(serving_role(run.workflow, agent) for agent in acting)
    absent = [role for role in serving if role_stream(role) not in ready]
    absent += [
        f"the pool {pool}"
        for pool in sorted({pool_of(policy_of(run, agent)) for agent in acting})
        if inference_stream(pool) not in ready
    ]
    if playing and needs_judge(run) and JUDGE_STREAM not in ready:
        absent.append("the judge")
    if TOOL_STREAM not in ready and (await bus.queue_lengths([TOOL_STREAM]))[TOOL_STREAM]:
        absent.append("the tools")
    reasons: list[str] = []
    if absent:
        reasons.append(
            f"no worker serves {', '.join(absent)} right now; the run waits until one does"
            " (`runtime status`)"
        )
        reasons += [
            f"{worker['name']} is broken: {worker['reason']}: "
            f"{last_error_line(worker['last_lines'])}"
            for worker in (supervisor_status(deployment) or {}).get("workers", [])
            if worker["state"] == "broken"
        ]
    if await bus.redis.zscore(bus.keys.shard_of(run.id).turn_waits, run.id) is not None:
        reasons.append("the run waits for its turn: no more runs may be active now")
    state = await bus.run_state(run.id)
    if state.failure:
        reasons.append(f"a step failed and will be retried: {state.failure}")
    for wait, words in zip(state.waits, describe_waits(state.waits), strict=True):
        commands = {"approval": "approvals ls", "effect": "effects ls"}
        command = commands.get(wait.kind, f"runs signal {run.id} {wait.name}")
        reasons.append(f"the run waits for {words} (`runtime {command}`)")
    return reasons

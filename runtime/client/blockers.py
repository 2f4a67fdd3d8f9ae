"""What a run waits for, told to the one who asked while it waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from loopline.agents.environments import math_team
from loopline.agents.environments.code import team as code_team
from loopline.agents.environments.game import AGENTS, TOOL
from loopline.agents.records import Run
from loopline.agents.workflows.pair import PairWorkflow
from loopline.bus import OUTAGE, Bus, pool_of, present
from loopline.runtime.client.deployment import Deployment
from loopline.runtime.observe.log_files import last_words
from loopline.runtime.observe.status import supervisor_status
from loopline.workers.messages import JUDGE_STREAM, TOOL_STREAM, inference_stream, role_stream

LOOK_SECONDS = 2.0
"""Between two looks: as often as workers say that they are there."""


async def tell_hold_ups(
    bus: Bus, run: Run, deployment: Deployment, say: Callable[[str], None]
) -> None:
    """Say what holds the run up, each thing when it begins, until cancelled."""
    told: list[str] = []
    while True:
        with contextlib.suppress(*OUTAGE):  # the client itself tells of those
            found = await hold_ups(bus, run, deployment)
            for line in found:
                if line not in told:
                    say(line)
            told = found
        await asyncio.sleep(LOOK_SECONDS)


async def hold_ups(bus: Bus, run: Run, deployment: Deployment) -> list[str]:
    """One line per thing: roles, pools, the judge and tools that no worker serves, workers of this
    machine that were given up, and why the last step is tried again."""
    ready = {
        stream
        for worker in await present(bus)
        if worker.state == "ready"
        for stream in worker.streams
    }
    absent = [role for role in run.policies if role_stream(role) not in ready]
    absent += [
        f"the pool {pool}"
        for pool in sorted(set(map(pool_of, run.policies.values())))
        if inference_stream(pool) not in ready
    ]
    if _asks_a_judge(run) and JUDGE_STREAM not in ready:
        absent.append("the judge")
    if TOOL_STREAM not in ready and (await bus.queue_lengths([TOOL_STREAM]))[TOOL_STREAM]:
        absent.append("the tools")
    found: list[str] = []
    if absent:
        found.append(
            f"no worker serves {', '.join(absent)} right now; the run waits until one does"
            " (`runtime status`)"
        )
        found += [
            f"{worker['name']} is broken: {worker['reason']}: {last_words(worker['last_lines'])}"
            for worker in (supervisor_status(deployment) or {}).get("workers", [])
            if worker["state"] == "broken"
        ]
    failure = (await bus.run_state(run.id)).failure
    if failure:
        found.append(f"a step failed and is tried again: {failure}")
    return found


def _asks_a_judge(run: Run) -> bool:
    """A team of code or mathematics does, and a puzzle's tool agent that writes programs."""
    if run.workflow != PairWorkflow.name:
        return False
    if run.task.environment in (code_team.ENVIRONMENT, math_team.ENVIRONMENT):
        return True
    setting = run.task.instance.get("setting")
    if not isinstance(setting, dict) or setting.get("python") is not True:
        return False
    team = setting.get("team", [*AGENTS])
    return isinstance(team, list) and TOOL in team

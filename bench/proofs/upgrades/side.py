"""One side of an upgrade: admits or examines runs, with the program of its own version.

Run as `python -m loopline.bench.proofs.upgrades.side JOB`, with a `Job` as JSON; it ends with one
line of JSON. The other version of the program has this module, too.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from typer.testing import CliRunner

from loopline.agents.records import Outcome
from loopline.agents.replay import replay
from loopline.agents.versions import without_unknown_fields
from loopline.bus import BusSettings, dead_letters
from loopline.runtime.cli import app
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_prompts import on_bus_or_in_store, trajectory_with_own_prompts
from loopline.runtime.observe.run_history import find_run
from loopline.runtime.terminal.dialogue import DialoguePrinter
from loopline.trainers.data.store import read_trajectories

OPTIONS = {"prompts": "mathematics"}
"""Options of the runs: an answer is only the number."""


class Job(BaseModel):
    """Work for one side."""

    bus: BusSettings
    admit: tuple[int, ...] = ()
    """Numbers of questions to ask."""
    look: tuple[str, ...] = ()
    """Runs to show, to replay and to find in the store."""
    store: Path | None = None
    """Store into which the runs are recorded."""
    fork: int = 0
    """Number of these runs on which the terminal's commands run; one of them is forked."""


def question(number: int) -> str:
    return f"What is {number} * 7 + 5?"


def answer(number: int) -> str:
    return str(number * 7 + 5)


async def admit(job: Job) -> dict[str, str]:
    """Admit the runs; return the right answer of each, by run."""
    wanted: dict[str, str] = {}
    async with Client.connect(job.bus) as client:
        for number in job.admit:
            run = client.new_run(question(number), options=dict(OPTIONS), tags={"n": str(number)})
            await client.submit(run)
            wanted[run.id] = answer(number)
    return wanted


async def look(job: Job) -> list[str]:
    """Return the parts of the runs that this version can't show or replay, and those of the store
    that it can't read."""
    if not job.look or job.store is None:
        return []
    troubles: list[str] = []
    reading = read_trajectories(job.store, None)
    troubles += [f"the store: {skipped}" for skipped in reading.skipped]
    recorded = {trajectory.run.id: trajectory for trajectory in reading.records}
    async with Client.connect(job.bus) as client:
        find = on_bus_or_in_store(client.bus, job.store)
        for run_id in job.look:
            known_run = await find_run(client.bus, run_id, job.store)
            ended = known_run.trajectory()
            printer = DialoguePrinter(Console(file=io.StringIO()))
            for step in known_run.steps:
                printer.step(step)
            printer.end(ended)
            result = await replay(await trajectory_with_own_prompts(ended, find))
            troubles += [f"{run_id}: {difference}" for difference in result.divergences]
            if run_id not in recorded:
                troubles.append(f"{run_id} is not in the store")
            # A newer recorder writes the defaults of fields that an older worker did not know.
            elif without_unknown_fields(recorded[run_id]) != without_unknown_fields(ended):
                troubles.append(f"{run_id} differs between the store and the bus")
    return troubles


def type_commands(job: Job) -> list[str]:
    """Return the failures of `runtime runs show|replay|fork` on the first of the runs."""
    troubles: list[str] = []
    url = ["--redis-url", job.bus.redis_url]
    for run_id in job.look[: job.fork]:
        for command in (
            ["show", run_id, *url],
            ["replay", run_id, *url],
            ["fork", run_id, "--at", "1", "--json", *url],
        ):
            if trouble := _trouble_of(command):
                troubles.append(trouble)
    return troubles


def _trouble_of(words: Sequence[str]) -> str:
    result = CliRunner().invoke(app, ["runs", *words])
    if result.exit_code == 0:
        return ""
    why = repr(result.exception) if result.exception else ""
    return f"runs {words[0]} {words[1]}: exit {result.exit_code}: {result.output.strip()} {why}"


async def bad_ends(bus: BusSettings, wanted: dict[str, str]) -> list[str]:
    """Return runs that did not end with their answer, once all have ended, and dead letters."""
    troubles: list[str] = []
    async with Client.connect(bus) as client:
        for run_id, right in wanted.items():
            trajectory = await client.wait(run_id)
            if (trajectory.outcome, trajectory.answer) != (Outcome.ANSWERED, right):
                troubles.append(
                    f"{run_id} ended {trajectory.outcome} {trajectory.answer!r}, not {right}: "
                    f"{trajectory.reason}"
                )
        troubles += [
            f"dead letter of {letter.run_id}: {letter.reason}"
            async for letter in dead_letters.ls(client.bus)
        ]
    return troubles


if __name__ == "__main__":
    assigned = Job.model_validate_json(sys.argv[1])
    outcome = {
        "admitted": asyncio.run(admit(assigned)),
        "troubles": [*asyncio.run(look(assigned)), *type_commands(assigned)],
    }
    print(json.dumps(outcome))

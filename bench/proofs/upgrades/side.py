"""One side of an upgrade: admits runs, or looks at runs, with the program of its own version.

Run as `python -m loopline.bench.proofs.upgrades.side JOB`, with a `Job` as JSON; it ends with one
line of JSON. The other version of the program has this module, too.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from loopline.agents.records import Outcome
from loopline.bus import BusSettings, dead_letters
from loopline.runtime.client.client import Client

OPTIONS = {"prompts": "mathematics"}
"""Of the runs: an answer is the number alone."""


class Job(BaseModel):
    """What to do."""

    bus: BusSettings
    admit: tuple[int, ...] = ()
    """Numbers of questions to ask."""
    look: tuple[str, ...] = ()
    """Runs to show and replay, as a terminal does."""
    fork: int = 0
    """Fork so many of them, and wait for the ends."""
    store: Path | None = None
    """Read all of it."""


def question(number: int) -> str:
    return f"What is {number} * 7 + 5?"


def answer(number: int) -> str:
    return str(number * 7 + 5)


async def admit(job: Job) -> dict[str, str]:
    """Run → the answer that it should have."""
    wanted: dict[str, str] = {}
    async with Client.connect(job.bus) as client:
        for number in job.admit:
            run = client.new_run(question(number), options=dict(OPTIONS), tags={"n": str(number)})
            await client.submit(run)
            wanted[run.id] = answer(number)
    return wanted


def look(job: Job) -> list[str]:
    """What `runtime runs show|replay|fork` and the readers of the store can't do with the runs."""
    troubles: list[str] = []
    url = ["--redis-url", job.bus.redis_url]
    for number, run_id in enumerate(job.look):
        commands = [["show", run_id, *url], ["replay", run_id, *url]]
        if number < job.fork:
            commands.append(["fork", run_id, "--at", "1", "--json", *url])
        troubles += [trouble for command in commands if (trouble := _trouble_of(command))]
    if job.store is not None:
        from loopline.trainers.data.store import read_trajectories

        reading = read_trajectories(job.store, None)
        troubles += [f"the store: {skipped}" for skipped in reading.skipped]
        recorded = {trajectory.run.id for trajectory in reading.records}
        troubles += [
            f"{run_id} is not in the store" for run_id in job.look if run_id not in recorded
        ]
    return troubles


def _trouble_of(words: Sequence[str]) -> str:
    from typer.testing import CliRunner

    from loopline.runtime.cli import app

    result = CliRunner().invoke(app, ["runs", *words])
    if result.exit_code == 0:
        return ""
    why = repr(result.exception) if result.exception else ""
    return f"runs {words[0]} {words[1]}: exit {result.exit_code}: {result.output.strip()} {why}"


async def bad_ends(bus: BusSettings, wanted: dict[str, str]) -> list[str]:
    """Runs that did not end with their answer, once all have ended, and dead letters."""
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
    outcome = {"admitted": asyncio.run(admit(assigned)), "troubles": look(assigned)}
    print(json.dumps(outcome))

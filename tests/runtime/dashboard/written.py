"""Writes what the dashboard reads: benchmarks, trainings, recorded runs."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from loopline.agents.records import Trajectory
from loopline.bench.checkers import Scorer
from loopline.bench.output import OutputDirectory
from loopline.bench.report.writer import write_reports
from loopline.runtime.client.run_ids import new_run_id
from loopline.testing.recorded_runs import as_on_the_bus
from loopline.workers.engines.settings import ScriptedOptions
from loopline.workers.recorder import TRAJECTORY_SCHEMA, Table, trajectory_row
from tests.bench.benchmarks import items, manifest, run
from tests.bench.local_client import POOLS, LocalClient
from tests.trainers.grpo.recorded import a_call, a_candidate, a_run, a_step

LONG_AGO = 1_700_000_000.0
HOSTILE = "<script>document.title = 'owned'</script>\u202etxt.exe"


def write_benchmarks(results: Path) -> None:
    """Two benchmarks of the same eight questions. In the second the big model is careless, which
    costs the router a quarter of its answers."""
    careless = POOLS["llm"].model_copy(update={"scripted": ScriptedOptions(mistake_rate=1.0)})
    for number, pools in enumerate((POOLS, {**POOLS, "llm": careless})):
        directory = OutputDirectory(results / f"sums-{number}")
        created = LONG_AGO + 864_000 * number
        directory.create(manifest(items(8, wrong=[3]), created=created))
        client = LocalClient(pools=pools)

        async def answer(
            directory: OutputDirectory = directory, client: LocalClient = client
        ) -> None:
            with Scorer() as scorer:
                await run(directory, client, scorer)

        _wait_for(answer())
        write_reports(directory)


def draw(curves: Path, steps: Iterable[int], shift: float = 0.0) -> None:
    """One more file of events, in which each step has a loss and a reward."""
    from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.summary_pb2 import (
        Summary,  # pyright: ignore[reportAttributeAccessIssue]
    )
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(curves), filename_suffix=f".{uuid.uuid4().hex}")
    for step in steps:
        noise = math.sin(step * 12.9898) * 0.2 + shift
        for tag, value in (("loss", 2 * math.exp(-step / 80) + noise), ("reward", step / 300)):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(Event(wall_time=LONG_AGO + step, step=step, summary=summary))
    writer.close()


def write_training(results: Path, name: str, group_of: str = "") -> None:
    """Curves of 300 steps; with `group_of`, also a round whose only group is of that run."""
    draw(results / name / "curves" / "shared", range(1, 301), len(name) / 20)
    if group_of:
        group = {
            "id": "g", "key": "puzzle 1", "policy": "llm/pair", "version": 4, "fate": "trained",
            "rewards": [1.0, 0.0], "origins": [f"{group_of}/0.0/solo#{at}" for at in range(2)],
        }  # fmt: skip
        path = results / name / "rounds" / "0002" / "groups.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"round": 2, "runs": [group_of], "groups": [group]}))


def recorded_run(number: int, question: str, *texts: str) -> Trajectory:
    """An old run whose candidates said `texts`."""
    run = a_run(number, a_step([a_candidate(1.0, a_call(text=text)) for text in texts or ("yes",)]))
    new_id = new_run_id(LONG_AGO + number)
    task = run.run.task.model_copy(update={"prompt": question})
    begun = run.run.model_copy(update={"id": new_id, "task": task, "created": LONG_AGO + number})
    steps = tuple(step.model_copy(update={"run_id": new_id}) for step in run.steps)
    return run.model_copy(update={"run": begun, "steps": steps, "ended": LONG_AGO + number + 1})


def record_runs(store: Path, runs: Sequence[Trajectory]) -> None:
    """Write the runs as a recorder does, into one file."""
    table = Table(store / "trajectories", 0, TRAJECTORY_SCHEMA, trajectory_row)
    first = int(runs[0].run.created)
    entries = [(f"{first}-{at}", as_on_the_bus(run)) for at, run in enumerate(runs)]
    _wait_for(table.write(entries))


def _wait_for(work: Coroutine[Any, Any, None]) -> None:
    """Run it in another thread: the browser's loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()

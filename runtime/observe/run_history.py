"""Finding runs: those on the bus (in flight, or ended within the retention), then the store's."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loopline.agents.records import Run
from loopline.bus import Bus
from loopline.runtime.client.client import RunUnknown, run_of, steps_of, trajectory_of
from loopline.runtime.errors import InputError
from loopline.runtime.observe.recorded_runs import KnownRun, find_recorded_run

MIN_FRAGMENT = 4


@dataclass(frozen=True)
class RunLine:
    """One run as `runtime runs ls` lists it."""

    id: str
    state: str
    """`active`, or its outcome."""
    workflow: str
    created: float
    seconds: float
    tokens: int
    micro_dollars: int
    answer: str
    question: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def run_ids(bus: Bus) -> list[str]:
    """Every run that the bus knows, newest first. Walks the keys: for people, not for loops."""
    ids: set[str] = set()  # a walk may meet a key twice
    for shard in bus.keys.all_shards():
        prefix = shard.run("*").removesuffix("*")
        pattern = prefix.replace("[", "\\[").replace("?", "\\?") + "*"
        async for key in bus.redis.scan_iter(match=pattern, count=1000):
            ids.add(key.decode().removeprefix(prefix))
    return sorted(ids, reverse=True)


async def list_runs(bus: Bus, limit: int, *, only_active: bool = False) -> list[RunLine]:
    """The newest runs on the bus."""
    if only_active:
        ids = sorted((run_id for run_id, _ in await bus.active_runs()), reverse=True)
    else:
        ids = await run_ids(bus)
    run_lines: list[RunLine] = []
    for run_id in ids[:limit]:
        state = await bus.run_state(run_id)
        if state.state == "missing":  # its life ended between the two looks
            continue
        run = Run.model_validate_json(state.run)
        run_lines.append(
            RunLine(
                id=run_id,
                state="active" if state.active else state.outcome,
                workflow=run.workflow,
                created=run.created,
                seconds=(bus.clock.now() if state.active else state.ended) - run.created,
                tokens=state.tokens,
                micro_dollars=state.micro_dollars,
                answer=state.answer,
                question=run.task.prompt,
            )
        )
    return run_lines


async def resolve(bus: Bus, fragment: str) -> str:
    """The run that `fragment` (a whole id, or a part that only one run has) means.

    A whole id is taken as it is: the run may live in the store alone. Raises `InputError`.
    """
    if len(fragment) == 36:
        return fragment
    if len(fragment) < MIN_FRAGMENT:
        raise InputError(f"{fragment!r} is too short for a run's id (at least {MIN_FRAGMENT})")
    hits = [run_id for run_id in await run_ids(bus) if fragment in run_id]
    if len(hits) == 1:
        return hits[0]
    if not hits:
        raise InputError(
            f"no run on the bus has {fragment!r} in its id",
            hint="`runtime runs ls` lists them; runs of the store need their whole id.",
        )
    raise InputError(f"{len(hits)} runs have {fragment!r} in their ids: {', '.join(hits[:5])} …")


async def find_run(bus: Bus, fragment: str, store: Path) -> KnownRun:
    """A run by its id, or a part of it, from the bus or else from the store.

    Raises `InputError` or `RunUnknown`.
    """
    run_id = await resolve(bus, fragment)
    state = await bus.run_state(run_id)
    if state.active:
        return KnownRun(run_of(state), steps_of(state), None)
    if state.state != "missing":
        return KnownRun.whole(trajectory_of(state))
    known_run = find_recorded_run(store, run_id)
    if known_run is None:
        raise RunUnknown(
            f"neither the bus nor the store in {store} has a run {run_id}",
            hint="`runtime runs ls` lists those on the bus.",
        )
    return known_run

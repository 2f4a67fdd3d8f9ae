"""Finds runs: first on the bus (in flight or within the retention time), then in the store."""

from __future__ import annotations

from pathlib import Path

from loopline.bus import Bus
from loopline.runtime.client.run_records import RunUnknown, run_of, steps_of, trajectory_of
from loopline.runtime.errors import InputError
from loopline.runtime.observe.recorded_runs import KnownRun, find_recorded_run

MIN_FRAGMENT = 4


async def run_ids(bus: Bus) -> list[str]:
    """Return every run that the bus knows, newest first."""
    ids: list[str] = []
    for shard in bus.keys.all_shards():
        ids += [run_id.decode() for run_id in await bus.redis.zrange(shard.runs(), 0, -1)]
        waiting = await bus.redis.zrange(shard.waits, 0, -1)
        ids += [member.decode().partition("/")[0] for member in waiting]
    return sorted(set(ids), reverse=True)


async def resolve(bus: Bus, fragment: str) -> str:
    """Return the id of the run that `fragment` identifies: a whole id, or a part that only one
    run's id contains. A whole id is not looked up: the run may only be in the store. Raises
    `InputError`.
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
            hint="`runtime runs ls` lists them; runs in the store need their full id.",
        )
    raise InputError(f"{len(hits)} runs have {fragment!r} in their ids: {', '.join(hits[:5])} …")


async def find_run(bus: Bus, fragment: str, store: Path) -> KnownRun:
    """Return a run by its id or a part of it, from the bus or else from the store. Raises
    `InputError` or `RunUnknown`.
    """
    run_id = await resolve(bus, fragment)
    state = await bus.run_state(run_id)
    if state.active:
        return KnownRun(run_of(state), steps_of(state), None, state.waits)
    if state.state != "missing":
        return KnownRun.whole(trajectory_of(state))
    known_run = find_recorded_run(store, run_id)
    if known_run is None:
        raise RunUnknown(
            f"neither the bus nor the store in {store} has a run {run_id}",
            hint="`runtime runs ls` lists those on the bus.",
        )
    return known_run

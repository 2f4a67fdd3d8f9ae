"""Collects the evidence from the bus and the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from loopline.bench.proofs.faults.evidence import (
    Event,
    Evidence,
    Letter,
    RunRecord,
    Stored,
    StreamState,
)
from loopline.bus import Bus, Shard, dead_letters
from loopline.workers.messages import TOOL_STREAM, inference_stream, role_stream

WORK_STREAMS = (
    *(role_stream(role) for role in ("planner", "slm", "expert")),
    *(inference_stream(pool) for pool in ("llm", "slm")),
    TOOL_STREAM,
)


async def find_keys_without_ttl(bus: Bus) -> list[str]:
    """Return keys without an expiry that should have one."""
    keys: list[str] = []
    batch: list[bytes] = []
    async for key in bus.redis.scan_iter(count=1000):
        batch.append(key)
        if len(batch) == 1000:
            keys += await _without_ttl(bus, batch)
            batch = []
    keys += await _without_ttl(bus, batch)
    return [key for key in keys if key not in bus.keys.permanent]


async def _without_ttl(bus: Bus, keys: list[bytes]) -> list[str]:
    async with bus.redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.pttl(key)
        lives = await pipe.execute()
    return [key.decode() for key, life in zip(keys, lives, strict=True) if life == -1]


async def stream_states(bus: Bus, keys: list[str]) -> dict[str, StreamState]:
    """Return lengths, pending entries and consumer names; missing streams are omitted."""
    states: dict[str, StreamState] = {}
    for key in keys:
        if not await bus.redis.exists(key):
            continue
        pending, consumers = 0, list[str]()
        for group in await bus.redis.xinfo_groups(key):
            pending += int(group["pending"])
            named = await bus.redis.xinfo_consumers(key, group["name"])
            consumers += [consumer["name"].decode() for consumer in named]
        states[key] = StreamState(
            length=int(await bus.redis.xlen(key)), pending=pending, consumers=consumers
        )
    return states


def work_keys(bus: Bus, work: Sequence[str]) -> list[str]:
    return [shard.work(name) for shard in bus.keys.all_shards() for name in work]


def log_keys(bus: Bus) -> list[str]:
    return [key for shard in bus.keys.all_shards() for key in (shard.trajectories, shard.ledger)]


async def gather(
    bus: Bus,
    store: Path,
    *,
    seed: int,
    accepted: list[str],
    keys_without_ttl: list[str],
    live_consumers: list[str],
    live_workers: list[str],
    work: Sequence[str] = WORK_STREAMS,
) -> Evidence:
    """Collect all evidence, after the workers have drained."""
    history: list[Event] = []
    delayed: dict[str, int] = {}
    for shard in bus.keys.all_shards():
        history += await _history(bus, shard)
        for name in work:
            delayed[shard.delayed(name)] = int(await bus.redis.zcard(shard.delayed(name)))
    run_ids = dict.fromkeys([*accepted, *(e.run_id for e in history if e.kind == "admit")])
    records = {run_id: await _record(bus, run_id) for run_id in run_ids}
    stored, stored_calls = read_store(store)
    return Evidence(
        seed=seed,
        accepted=accepted,
        history=history,
        runs={run_id: record for run_id, record in records.items() if record is not None},
        stored=stored,
        stored_calls=stored_calls,
        streams=await stream_states(bus, work_keys(bus, work) + log_keys(bus)),
        delayed=delayed,
        active=[run_id for run_id, _ in await bus.active_runs()],
        dead_letters=[
            Letter(run_id=letter.run_id, stream=letter.stream, reason=letter.reason)
            async for letter in dead_letters.ls(bus)
        ],
        keys_without_ttl=sorted({*keys_without_ttl, *await find_keys_without_ttl(bus)}),
        live_consumers_before_drain=live_consumers,
        live_workers=live_workers,
    )


async def _history(bus: Bus, shard: Shard) -> list[Event]:
    events: list[Event] = []
    after = "-"
    while page := await bus.redis.xrange(shard.history, after, count=5000):
        for entry, fields in page:
            named = {name.decode(): value.decode() for name, value in fields.items()}
            events.append(Event(id=entry.decode(), fields=named))
        after = f"({events[-1].id}"
    return events


async def _record(bus: Bus, run_id: str) -> RunRecord | None:
    state = await bus.run_state(run_id)
    if state.state == "missing":
        return None
    fields = await bus.redis.hgetall(bus.keys.shard_of(run_id).run(run_id))  # pyright: ignore
    guards = {
        name.decode().removeprefix("step:"): token.decode()
        for name, token in fields.items()
        if name.startswith(b"step:")
    }
    return RunRecord(
        state=state.state,
        outcome=state.outcome,
        answer=state.answer,
        reason=state.reason,
        tokens=state.tokens,
        micro_dollars=state.micro_dollars,
        ended=state.ended,
        run=state.run.decode(),
        journal=[step.decode() for step in state.steps],
        guards=guards,
        usage=[entry.decode() for entry in await bus.usage(run_id)],
    )


def read_store(store: Path) -> tuple[list[Stored], list[str]]:
    """Return trajectories and `run_id call_id fate` of the ledger, as the recorder wrote them."""
    trajectories: list[Stored] = []
    for path in sorted((store / "trajectories").glob("*.parquet")):
        columns = ["run_id", "entry", "outcome", "answer", "trajectory"]
        rows = pq.read_table(path, columns=columns).to_pylist()
        trajectories += [Stored.model_validate(row) for row in rows]
    calls: list[str] = []
    for path in sorted((store / "usage").glob("*.parquet")):
        rows = pq.read_table(path, columns=["run_id", "call_id", "discarded", "unknown"])
        for row in rows.to_pylist():
            what = "unknown" if row["unknown"] else "discarded" if row["discarded"] else "used"
            calls.append(f"{row['run_id']} {row['call_id']} {what}")
    return trajectories, calls

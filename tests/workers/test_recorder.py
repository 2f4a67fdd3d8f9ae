"""The recorder writes before it acknowledges, once, and keeps unreadable entries."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from loopline.agents.records import Trajectory
from loopline.agents.workflow_runner import run_locally
from loopline.bus import Bus, LogConsumer
from loopline.bus.log_consumer import Entry
from loopline.testing.recorded_runs import as_on_the_bus
from loopline.workers.recorder import (
    TRAJECTORY_SCHEMA,
    USAGE_SCHEMA,
    Table,
    trajectory_row,
    usage_row,
)
from loopline.workers.store.files import FileName
from tests.agents.test_pair import TO_THE_GOAL, ManyHost, a_task, pair_run
from tests.bus.serving import until

USAGE = {
    "run_id": "r",
    "call_id": "r/0.0/0",
    "agent": "solo",
    "turn": 0,
    "policy": {"name": "llm", "base": "scripted-llm"},
    "usage": {"prompt": 10, "completion": 3, "source": "engine"},
    "cost_micro_dollars": 7,
    "latency": {},
    "at": 1.0,
}


def entry(number: int) -> tuple[str, dict[bytes, bytes]]:
    return f"{number}-0", {b"usage": json.dumps(USAGE | {"call_id": str(number)}).encode()}


def table(folder: Path) -> Table:
    return Table(folder / "usage", 0, USAGE_SCHEMA, usage_row)


def written(folder: Path) -> list[str]:
    return sorted(pq.read_table(folder / "usage")["call_id"].to_pylist(), key=int)


@contextmanager
def no_room() -> Generator[None]:
    """Every file of this process is limited to one byte, so writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_batch_repeated_after_a_crash_is_written_once(tmp_path: Path) -> None:
    await table(tmp_path).write([entry(1), entry(2)])
    # A new process: the first one died between renaming the file and acknowledging.
    await table(tmp_path).write([entry(1), entry(2), entry(3)])
    assert written(tmp_path) == ["1", "2", "3"]


async def test_entries_that_another_recorder_already_wrote_are_not_written_again(
    tmp_path: Path,
) -> None:
    first, second = table(tmp_path), table(tmp_path)
    await first.write([entry(1), entry(2)])
    await second.write([entry(2), entry(3)])
    assert written(tmp_path) == ["1", "2", "3"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sets(st.integers(1, 12), min_size=1)), max_size=8))
def test_recorders_that_share_a_folder_write_each_entry_once(
    batches: list[tuple[int, set[int]]],
) -> None:
    """This holds in any order of arrival, whatever one of them has seen before."""
    with TemporaryDirectory() as folder:
        recorders = [table(Path(folder)) for _ in range(3)]
        for which, numbers in batches:
            asyncio.run(recorders[which].write([entry(number) for number in sorted(numbers)]))
        wanted = set[int]().union(*(numbers for _, numbers in batches))
        assert (written(Path(folder)) if wanted else []) == [str(item) for item in sorted(wanted)]


@contextmanager
def standing_still(folder: Path) -> Generator[None]:
    """Hold the lock, like another recorder between its check and its own file."""
    lock = os.open(folder / "usage", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


async def test_a_recorder_waits_for_another_that_is_writing(tmp_path: Path) -> None:
    """A recorder that was paused for longer than its lease resumes: shared entries would be
    duplicated."""
    late, next_one = table(tmp_path), table(tmp_path)
    with standing_still(tmp_path):
        waiting = asyncio.create_task(next_one.write([entry(1), entry(2), entry(3)]))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        late._write([entry(1), entry(2)])  # pyright: ignore[reportPrivateUsage]
    await waiting
    assert written(tmp_path) == ["1", "2", "3"]


async def test_a_stalled_recorder_is_reported_and_the_batch_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.workers.recorder.LOCK_SECONDS", 0.05)
    waiting = table(tmp_path)
    with (
        standing_still(tmp_path),
        pytest.raises(BlockingIOError, match=r"another recorder has locked .*the batch stays"),
    ):
        await waiting.write([entry(1)])


async def test_a_killed_recorder_s_partial_file_is_removed(tmp_path: Path) -> None:
    part_file = tmp_path / "usage" / ".000-1-0-2-0-2.4711.part"
    part_file.parent.mkdir()
    part_file.touch()
    await table(tmp_path).write([entry(1)])
    assert not part_file.exists()
    assert written(tmp_path) == ["1"]


async def test_entries_of_a_moved_file_are_written_again(tmp_path: Path) -> None:
    recorder = table(tmp_path)
    await recorder.write([entry(1), entry(2)])
    for file in (tmp_path / "usage").iterdir():
        file.rename(tmp_path / file.name)
    await recorder.write([entry(1), entry(2)])
    assert written(tmp_path) == ["1", "2"]


async def test_the_file_names_of_a_store_are_parsed_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large store has thousands of files, and every batch lists them."""
    names: list[str] = []
    parse = FileName.parse

    def counted(name: str) -> FileName | None:
        names.append(name)
        return parse(name)

    monkeypatch.setattr(FileName, "parse", counted)
    recorder = table(tmp_path)
    for number in range(20):
        (tmp_path / "usage" / f"000-{number}-0-{number}-0-1.parquet").touch()
    for place in (30_000, 30_001, 30_002):
        await recorder.write([entry(place)])
    present = {path.name for path in (tmp_path / "usage").iterdir()}
    assert sorted(names) == sorted(name for name in present if "-30002-" not in name)


async def test_entries_between_those_of_another_file_are_written(tmp_path: Path) -> None:
    await table(tmp_path).write([entry(1), entry(3)])
    await table(tmp_path).write([entry(2)])
    assert written(tmp_path) == ["1", "2", "3"]


def damage(folder: Path) -> Path:
    """Damage the only file of the table."""
    [path] = (folder / "usage").iterdir()
    path.write_bytes(b"no Parquet")
    return path


async def test_a_damaged_file_that_may_contain_the_batch_is_set_aside_and_reported(
    tmp_path: Path,
) -> None:
    await table(tmp_path).write([entry(1), entry(3)])
    path = damage(tmp_path)
    with capture_logs() as lines:
        await table(tmp_path).write([entry(2)])
    assert written(tmp_path) == ["2"]
    assert (tmp_path / "unreadable" / f"usage-{path.name}").read_bytes() == b"no Parquet"
    [line] = [line for line in lines if line["event"] == "damaged file set aside"]
    assert line["file"] == str(path)


async def test_a_damaged_file_of_other_entries_does_not_block_a_batch(tmp_path: Path) -> None:
    await table(tmp_path).write([entry(1), entry(3)])
    damage(tmp_path)
    store = table(tmp_path)
    await store.write([entry(4)])
    assert store.rows == 1


async def test_a_full_disk_leaves_no_partial_file_and_the_batch_can_be_written_later(
    tmp_path: Path,
) -> None:
    store = table(tmp_path)
    with no_room(), pytest.raises(OSError, match="File too large"):
        await store.write([entry(1)])
    assert list((tmp_path / "usage").iterdir()) == []
    await store.write([entry(1)])
    assert written(tmp_path) == ["1"]


async def test_an_invalid_entry_is_set_aside_whole_and_the_rest_is_written(
    tmp_path: Path,
) -> None:
    bad = ("2-0", {b"usage": b"\xff{not json"})
    await table(tmp_path).write([entry(1), bad, entry(3)])
    assert written(tmp_path) == ["1", "3"]
    [aside] = (tmp_path / "unreadable").iterdir()
    record = json.loads(aside.read_text())
    assert bytes.fromhex(record["fields_hex"]["usage"]) == b"\xff{not json"


async def test_a_number_too_large_for_its_column_affects_only_its_own_entry(tmp_path: Path) -> None:
    usage = {"prompt": 10**20, "completion": 3, "source": "provider"}
    bad = "2-0", {b"usage": json.dumps(USAGE | {"usage": usage}).encode()}
    await table(tmp_path).write([entry(1), bad, entry(3)])
    assert written(tmp_path) == ["1", "3"]
    assert len(list((tmp_path / "unreadable").iterdir())) == 1


async def test_entries_stay_on_the_bus_until_the_disk_has_room(bus: Bus, tmp_path: Path) -> None:
    key = bus.keys.shard(0).ledger
    store = table(tmp_path)
    refused = asyncio.Event()

    async def write(entries: list[tuple[str, dict[bytes, bytes]]]) -> None:
        if not refused.is_set():
            refused.set()
            with no_room():
                await store.write(entries)
        await store.write(entries)

    reader = LogConsumer(bus, key, "recorder", write)  # pyright: ignore[reportArgumentType]
    task = asyncio.create_task(reader.run())
    await bus.redis.xadd(key, {b"usage": json.dumps(USAGE | {"call_id": "1"}).encode()})
    await asyncio.wait_for(refused.wait(), 10)
    async with asyncio.timeout(10):
        while await bus.redis.xlen(key):  # trimmed once it is acknowledged  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    reader.drain()
    await task
    assert written(tmp_path) == ["1"]


async def test_a_recorder_killed_before_acknowledging_leaves_no_duplicate_row(
    bus: Bus, tmp_path: Path
) -> None:
    """The halves of its batch reach the other recorder at different times; it was opened before
    they were written."""
    key = bus.keys.shard(0).ledger
    killed, second_table = table(tmp_path), table(tmp_path)
    renamed = asyncio.Event()

    async def write(entries: Sequence[Entry]) -> None:
        await killed.write(entries)
        renamed.set()
        await asyncio.Event().wait()

    async def publish(number: int) -> None:
        await bus.redis.xadd(key, {b"usage": entry(number)[1][b"usage"]})

    doomed = asyncio.create_task(LogConsumer(bus, key, "recorder", write, linger=0.3).run())
    await publish(1)

    async def half() -> bool:
        if not await bus.redis.exists(key):
            return False
        groups = await bus.redis.xinfo_groups(key)
        return bool(groups) and groups[0]["pending"] == 1

    await until(half, "the first half")
    await publish(2)
    await asyncio.wait_for(renamed.wait(), 10)
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)
    assert written(tmp_path) == ["1", "2"]
    reader = LogConsumer(bus, key, "recorder", second_table.write)
    task = asyncio.create_task(reader.run())

    async def trimmed() -> bool:
        return not await bus.redis.xlen(key)

    await until(trimmed, "both halves are acknowledged")
    reader.drain()
    await task
    assert written(tmp_path) == ["1", "2"]


async def test_a_game_s_row_contains_its_agents_rewards() -> None:
    """The bus carries the journal and the end; the workflow computes the rewards."""
    played = await a_game()
    stored = Trajectory.model_validate_json(trajectory_row(as_on_the_bus(played))["trajectory"])
    assert stored == played
    assert (stored.team_reward, stored.agent_rewards) == (1.0, {"plan_agent": 2.0})


async def test_a_large_integer_is_stored_exactly() -> None:
    played = await a_game()
    first = played.steps[0].model_copy(update={"observation": {"fibonacci": 354224848179261915075}})
    fields = as_on_the_bus(played.model_copy(update={"steps": (first, *played.steps[1:])}))
    stored = Trajectory.model_validate_json(trajectory_row(fields)["trajectory"])
    assert stored.steps[0] == first


async def test_a_workflow_whose_rewards_raise_does_not_block_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(trajectory: Trajectory) -> Trajectory:
        if trajectory.answer == "spoiled":
            return trajectory.model_copy(update={"team_reward": [1.0][1]})
        return trajectory

    played = await a_game()
    spoiled = as_on_the_bus(played.model_copy(update={"answer": "spoiled"}))
    monkeypatch.setattr("loopline.workers.recorder.add_rewards", raises)
    store = Table(tmp_path / "trajectories", 0, TRAJECTORY_SCHEMA, trajectory_row)
    await store.write([("1-0", spoiled), ("2-0", as_on_the_bus(played))])
    [path] = (tmp_path / "trajectories").iterdir()
    assert pq.read_table(path)["run_id"].to_pylist() == [played.run.id]
    [aside] = (tmp_path / "unreadable").iterdir()
    assert json.loads(aside.read_text())["error"] == "list index out of range"


async def a_game() -> Trajectory:
    run = pair_run(a_task(team=["plan_agent"]), candidates=2)
    return await run_locally(run, {"plan_agent": ManyHost([["?", TO_THE_GOAL]])})

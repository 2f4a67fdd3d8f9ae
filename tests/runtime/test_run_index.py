"""The list of runs: its pages contain each run once, the newest first, and filters narrow it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from loopline.bus import Admission, Bus, BusSettings, Outgoing, Shard
from loopline.runtime.errors import InputError
from loopline.runtime.observe import run_index
from loopline.runtime.observe.run_index import (
    PassedRuns,
    Place,
    RunLine,
    RunQuery,
    find_runs,
    list_runs,
)
from tests.bus.payloads import new_run_id, note


@pytest.fixture
def settings(settings: BusSettings) -> BusSettings:
    return settings.model_copy(update={"shards": 3})


def record_of(
    run_id: str,
    question: str,
    *,
    workflow: str = "solo",
    account: str = "",
    tags: str = "{}",
    age: float = 0.0,
) -> str:
    """The record of a run as another version writes it."""
    return (
        f'{{"id": "{run_id}", "workflow": "{workflow}", "created": {time.time() - age},'
        f' "task": {{"prompt": "{question}"}}, "account": "{account}", "tags": {tags},'
        ' "a field of a newer version": 1}'
    )


async def admit(
    bus: Bus,
    question: str = "2 + 2?",
    *,
    workflow: str = "solo",
    account: str = "",
    tags: str = "{}",
    age: float = 0.0,
) -> str:
    run_id = new_run_id()
    record = record_of(run_id, question, workflow=workflow, account=account, tags=tags, age=age)
    message = Outgoing("planner", note(run_id))
    await bus.admit(
        Admission(run_id, record.encode(), time.time() + 60, (message,), account=account)
    )
    return run_id


async def listed(bus: Bus, query: RunQuery | None = None, count: int = 50) -> list[str]:
    """The ids on all pages."""
    query = query or RunQuery()
    ids: list[str] = []
    place: Place | None = None
    while True:
        page = await find_runs(bus, query, count, place)
        assert len(page.lines) <= count
        ids += [line.id for line in page.lines]
        place = page.next_page
        if place is None:
            return ids


@pytest.mark.parametrize("count", [1, 2, 7, 50])
async def test_all_pages_together_list_every_run_once_with_the_newest_first(
    bus: Bus, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_index, "BATCH", 3)
    admitted = [await admit(bus) for _ in range(11)]
    ids = await listed(bus, count=count)
    assert sorted(ids) == sorted(admitted)
    scores = {
        run_id.decode(): score
        for shard in bus.keys.all_shards()
        for run_id, score in await bus.redis.zrange(shard.runs(), 0, -1, withscores=True)
    }
    assert ids == sorted(admitted, key=lambda run_id: (scores[run_id], run_id), reverse=True)


async def test_runs_admitted_between_two_pages_do_not_shift_the_next_page(bus: Bus) -> None:
    first = [await admit(bus) for _ in range(4)]
    page = await find_runs(bus, RunQuery(), 2)
    for _ in range(3):
        await admit(bus)
    rest = await find_runs(bus, RunQuery(), 2, page.next_page)
    assert {line.id for line in (*page.lines, *rest.lines)} == set(first)


async def test_a_filter_keeps_only_matching_runs(bus: Bus) -> None:
    alone = await admit(bus, "Capital of FRANCE?", workflow="agent", account="a" * 12)
    tagged = await admit(bus, tags='{"team": "red"}')
    ended = await admit(bus)
    await bus.end_run(ended, "cancelled", "no more")
    assert await listed(bus, RunQuery(workflow="agent")) == [alone]
    assert await listed(bus, RunQuery(words="france")) == [alone]
    assert await listed(bus, RunQuery(account="a" * 12)) == [alone]
    assert await listed(bus, RunQuery(tags={"team": "red"})) == [tagged]
    assert await listed(bus, RunQuery(state="cancelled")) == [ended]
    assert set(await listed(bus, RunQuery(state="active"))) == {alone, tagged}
    assert await listed(bus, RunQuery(least_micro_dollars=1)) == []
    assert await listed(bus, RunQuery(until=time.time() - 3600)) == []


@pytest.mark.parametrize(("limit", "value"), [("MAX_LOOKED", 4), ("MAX_LOOK_SECONDS", 0.0)])
async def test_a_page_ends_at_its_search_limit_and_the_next_continues_from_there(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(run_index, "BATCH", 2)
    monkeypatch.setattr(run_index, limit, value)
    wanted = await admit(bus, workflow="agent")
    for _ in range(9):
        await admit(bus)
    query = RunQuery(workflow="agent")
    page = await find_runs(bus, query)
    assert page.lines == []
    assert page.next_page is not None
    assert await listed(bus, query) == [wanted]
    assert [line.id for line in (await list_runs(bus, query, 2)).lines] == [wanted]


async def test_a_run_with_an_expired_record_is_left_out_and_an_unreadable_one_is_reported(
    bus: Bus,
) -> None:
    expired, unreadable, whole = [await admit(bus) for _ in range(3)]
    await bus.redis.delete(bus.keys.shard_of(expired).run(expired))
    await bus.redis.hset(bus.keys.shard_of(unreadable).run(unreadable), "run", b"[1")  # pyright: ignore
    assert await listed(bus) == [whole]
    assert (await list_runs(bus, RunQuery(), 5)).unreadable == [unreadable]


def test_a_line_shows_how_long_an_active_run_has_taken_so_far() -> None:
    line = RunLine("r", "active", "solo", 10.0, None, 0, 0, "", "", "q", "", None, {})
    assert line.seconds(12.5) == 2.5


@pytest.mark.parametrize("text", ["", "7", "x.y", "1" * 16 + ".r", "7."])
def test_an_invalid_place_in_the_list_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a place in the list of runs"):
        Place.parse(text)


async def test_words_are_searched_in_the_whole_conversation(bus: Bus) -> None:
    run_id = new_run_id()
    messages = '[{"role": "system", "content": "You sell Teapots."}, {"content": "And A7?"}]'
    record = (
        f'{{"id": "{run_id}", "workflow": "chat", "created": {time.time()},'
        f' "policies": {{"chat": "slm/caller@3"}},'
        f' "task": {{"prompt": "And A7?", "messages": {messages}}}}}'
    )
    message = Outgoing("planner", note(run_id))
    await bus.admit(Admission(run_id, record.encode(), time.time() + 60, (message,)))
    page = await find_runs(bus, RunQuery(words="teapots"))
    assert [(line.id, line.policies) for line in page.lines] == [(run_id, ("slm/caller@3",))]
    assert "conversation" not in page.lines[0].as_json(time.time())
    assert (await find_runs(bus, RunQuery(words="kettles"))).lines == []


async def test_ended_runs_that_do_not_match_are_read_once_for_a_query(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = run_index._read  # pyright: ignore[reportPrivateUsage]

    async def counted(bus: Bus, batch: Sequence[tuple[Shard, Place]]) -> object:
        reads.append(len(batch))
        return await read(bus, batch)

    monkeypatch.setattr(run_index, "_read", counted)
    ids = [await admit(bus) for _ in range(6)]
    for run_id in ids[:4]:
        await bus.end_run(run_id, "cancelled", "no more")
    passed, query = PassedRuns(), RunQuery(workflow="agent")
    assert (await find_runs(bus, query, passed=passed)).lines == []
    assert (await find_runs(bus, query, passed=passed)).lines == []
    assert sum(reads) == 6 + 2, "those that go on may match later"
    ended = RunQuery(state="cancelled")
    first = await find_runs(bus, ended, passed=passed)
    assert {line.id for line in first.lines} == set(ids[:4])
    await bus.end_run(ids[4], "cancelled", "no more")
    again = await find_runs(bus, ended, passed=passed)
    assert {line.id for line in again.lines} == set(ids[:5])
    for number in range(run_index.MAX_QUERIES):
        passed.of(RunQuery(workflow=str(number)))
    reads.clear()
    await find_runs(bus, query, passed=passed)
    assert sum(reads) == 6, "of the oldest query nothing is remembered any more"


def test_the_memory_of_skipped_runs_has_one_bound_for_all_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_index, "MAX_PASSED", 10)
    passed = PassedRuns()
    for number in range(100):
        passed.of(RunQuery(workflow=f"w{number % 7}")).update(f"{number}-{i}" for i in range(4))
        assert len(passed) <= 10 + 4
    assert passed.of(RunQuery(workflow="w1")), "the newest query is remembered"
    assert not passed.of(RunQuery(workflow="w2")), "the oldest is not"


def test_skipped_runs_are_forgotten_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, now = PassedRuns(), 1_000.0
    monkeypatch.setattr(run_index.time, "monotonic", lambda: now)
    passed.of(RunQuery(workflow="a")).add("run")
    now += run_index.PASSED_SECONDS + 1
    passed.of(RunQuery(workflow="b"))
    assert len(passed) == 0, "though nobody asks the first query again"

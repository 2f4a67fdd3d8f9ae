"""The runner against real roles and the scripted engine: resume, budget, interruption, outages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopline.agents.records import Outcome, Run, Trajectory
from loopline.agents.usage import UnknownUsage
from loopline.bench.checkers import Scorer
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.journal import GroupFlush, Journal
from loopline.bench.ledger import read_ledger, total
from loopline.bench.output import OutputDirectory
from loopline.bench.report.computation import facts_of
from loopline.bench.report.writer import write_reports
from loopline.bench.runner import Ending, Runner
from loopline.bus import BusUnavailable, Overloaded
from loopline.runtime.run_driver import seed_of
from tests.bench.benchmarks import Watched, created, items, manifest, run
from tests.bench.local_client import LocalClient


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer() as opened:
        yield opened


async def test_every_question_gets_one_result_per_arm(tmp_path: Path, scorer: Scorer) -> None:
    """And the ledger's sum equals the engines' own count."""
    directory = created(tmp_path, manifest(items(10, wrong=[4])))
    client, watched = LocalClient(), Watched()
    assert await run(directory, client, scorer, watched) is Ending.COMPLETE
    facts = facts_of(directory)
    assert facts.notices == []
    assert facts.results["complete"]
    for name in ("llm", "router", "slm"):
        assert facts.results["arms"][name]["n"] == 10
    assert facts.results["arms"]["llm"]["accuracy"]["numeric"]["right"] == 9
    assert facts.results["arms"]["router"]["delegations"] >= 10
    entries = read_ledger(directory.ledger_path)
    for pool, engine in client.engines.items():
        entries_of_pool = [e for e in entries if e.policy.name == pool]
        assert total(entries_of_pool).completion == engine.totals().completion_tokens
        assert total(entries_of_pool).prompt == engine.totals().prompt_tokens
    assert sum(watched.spent) == total(entries).micro_dollars


async def test_the_run_id_is_on_disk_before_the_run_reaches_the_bus(
    tmp_path: Path, scorer: Scorer
) -> None:
    """Otherwise a crash in between would leave a paid but forgotten run."""
    directory = created(tmp_path, manifest(items(6)))
    checks: list[bool] = []

    class Suspicious(LocalClient):
        async def submit(self, run: Run) -> bool:
            lines = directory.items_path.read_text().splitlines()
            written = {json.loads(line)["run_id"] for line in lines if '"admitted"' in line}
            checks.append(run.id in written)
            return await super().submit(run)

    await run(directory, Suspicious(), scorer)
    assert len(checks) == 18
    assert all(checks)


async def test_a_benchmark_cut_off_at_any_line_is_completed_to_the_same_report(
    tmp_path: Path, scorer: Scorer
) -> None:
    """The files are cut at many places, as SIGKILL leaves them; the resumed bench uses the same
    deployment. No answered run is repeated."""
    questions = items(5, wrong=[2])
    whole = created(tmp_path / "whole", manifest(questions))
    await run(whole, LocalClient(), scorer)
    expected = facts_of(whole).results
    for part in (1, 4, 7, 10, 13):
        directory = created(tmp_path / f"cut-{part}", manifest(questions))
        client = LocalClient()
        await run(directory, client, scorer)
        first_results = dict(client.ended)
        for path in (directory.items_path, directory.ledger_path, directory.transcripts_path):
            text = path.read_bytes()
            path.write_bytes(text[: len(text) * part // 14])
        watched = Watched()
        assert await run(directory, client, scorer, watched) is Ending.COMPLETE
        assert all(
            client.ended[run_id] is trajectory for run_id, trajectory in first_results.items()
        )
        assert facts_of(directory).results == expected
        assert watched.earlier < 15


async def test_a_run_that_was_admitted_and_never_reached_the_bus_keeps_its_id(
    tmp_path: Path, scorer: Scorer
) -> None:
    """Killed between the write and the admission."""
    directory = created(tmp_path, manifest(items(2), arms=("llm",)))
    client = LocalClient()
    first = client.new_run("never sent")
    line = {"type": "admitted", "run_id": first.id, "arm": "llm", "item": "sums/test/1"}
    directory.items_path.write_text(json.dumps(line) + "\n")
    await run(directory, client, scorer)
    assert directory.stored().results[("llm", "sums/test/1")].run_id == first.id


async def test_the_budget_stops_admissions_and_reports_the_rest(
    tmp_path: Path, scorer: Scorer
) -> None:
    """According to the cost of the same arm's runs so far; exceeded only by runs in flight."""
    whole = created(tmp_path / "whole", manifest(items(20), arms=("llm",), concurrency=1))
    await run(whole, LocalClient(), scorer)
    cost = total(read_ledger(whole.ledger_path)).micro_dollars
    directory = created(
        tmp_path / "part",
        manifest(items(20), arms=("llm",), concurrency=1, budget_micro_dollars=cost // 2),
    )
    assert await run(directory, LocalClient(), scorer) is Ending.BUDGET
    spent = total(read_ledger(directory.ledger_path)).micro_dollars
    assert 0.3 * cost < spent <= 0.55 * cost
    facts = facts_of(directory)
    assert not facts.results["complete"]
    assert len(facts.results["not_done"]["llm"]) == 20 - facts.results["arms"]["llm"]["n"]


async def test_a_budget_applies_from_the_first_run_on(tmp_path: Path, scorer: Scorer) -> None:
    """The cost of a run is unknown before the first one ends, so the first one runs on its own."""
    bench_manifest = manifest(items(20), arms=("llm",), concurrency=8, budget_micro_dollars=1)
    directory = created(tmp_path, bench_manifest)
    watched = Watched()
    assert await run(directory, LocalClient(), scorer, watched) is Ending.BUDGET
    assert len(watched.admissions) == 1


async def test_an_interruption_after_the_budget_is_used_up_waits_no_longer_than_its_grace(
    tmp_path: Path, scorer: Scorer
) -> None:
    class FirstOnly(LocalClient):
        async def wait(self, run_id: str) -> Trajectory:
            if len(self.ended) == 2:
                await asyncio.Event().wait()
            return await super().wait(run_id)

    whole = created(tmp_path / "whole", manifest(items(2), arms=("llm",), concurrency=1))
    await run(whole, LocalClient(), scorer)
    cost = total(read_ledger(whole.ledger_path)).micro_dollars
    bench_manifest = manifest(
        items(9), arms=("llm",), concurrency=2, budget_micro_dollars=int(1.6 * cost)
    )
    directory, client = created(tmp_path / "part", bench_manifest), FirstOnly()
    with Journal(directory) as journal:
        stored = directory.stored()
        watched = Watched(awaited=3)
        runner = Runner(directory.manifest(), stored, journal, client, scorer, watched, grace=0.05)
        running = asyncio.create_task(runner.run())
        await watched.reached.wait()
        runner.interrupt()
        assert await asyncio.wait_for(running, 20) is Ending.INTERRUPTED


@pytest.mark.parametrize("ended", [1.0, 1e11], ids=["at once", "when a worker was back"])
async def test_a_question_that_expired_while_no_bench_waited_is_repeated(
    ended: float, tmp_path: Path, scorer: Scorer
) -> None:
    """Its calls stay in the ledger."""
    directory, client = await asked_anew(tmp_path, scorer, ended=ended)
    facts = facts_of(directory)
    assert facts.notices == []
    assert facts.results["arms"]["llm"]["accuracy"]["numeric"]["right"] == 2
    booked = {entry.run_id for entry in read_ledger(directory.ledger_path)}
    assert booked == set(client.runs)
    assert len(booked) == 3


async def asked_anew(
    path: Path, scorer: Scorer, *, ended: float = 1.0
) -> tuple[OutputDirectory, LocalClient]:
    """A killed benchmark that is resumed after the deadline of its runs in flight, which ended
    then."""
    directory = created(path, manifest(items(2), arms=("llm",)))
    client = LocalClient()
    lapsed = client.new_run("What is 3 * 5 + 0?", workflow="solo")
    await client.submit(lapsed)
    whole = await client.wait(lapsed.id)
    client.ended[lapsed.id] = whole.model_copy(
        update={
            "run": lapsed.model_copy(update={"deadline": 1.0}),
            "outcome": Outcome.DEADLINE,
            "answer": None,
            "steps": (),
            "ended": ended,
        }
    )
    line = {"type": "admitted", "run_id": lapsed.id, "arm": "llm", "item": "sums/test/0"}
    directory.items_path.write_text(json.dumps(line) + "\n")
    assert await run(directory, client, scorer) is Ending.COMPLETE
    return directory, client


async def test_used_discarded_and_superseded_calls_add_up_to_the_total_paid(
    tmp_path: Path, scorer: Scorer
) -> None:
    """One call for each of three runs, of which the first counts for no arm; and one discarded
    call."""
    directory, client = await asked_anew(tmp_path, scorer)
    superseded, *used = directory.stored().runs
    late = client.ledger[used[0]][0].model_copy(update={"call_id": "late", "discarded": True})
    with Journal(directory) as journal:
        journal.charge([late])
    facts = facts_of(directory)
    timings, usage = facts.timings, facts.results["arms"]["llm"]["usage"]
    assert timings["superseded"] == total(client.ledger[superseded]).as_dict()
    assert timings["superseded"]["micro_dollars"] > 0
    parts = (usage, timings["discarded"], timings["superseded"])
    assert timings["paid"] == {name: sum(part[name] for part in parts) for name in usage}


@pytest.mark.parametrize("name", ["report.html", "report.md"])
async def test_a_report_states_the_cost_of_superseded_runs(
    name: str, tmp_path: Path, scorer: Scorer
) -> None:
    directory, _ = await asked_anew(tmp_path, scorer)
    write_reports(directory)
    text = (directory.path / name).read_text(encoding="utf-8")
    assert "of runs that were repeated or have no result" in text
    assert "Every paid call was used." not in text


@pytest.mark.parametrize("name", ["report.html", "report.md"])
async def test_a_report_says_if_every_call_counts(
    name: str, tmp_path: Path, scorer: Scorer
) -> None:
    directory = created(tmp_path, manifest(items(2), arms=("llm",)))
    await run(directory, LocalClient(), scorer)
    write_reports(directory)
    text = (directory.path / name).read_text(encoding="utf-8")
    assert "Every paid call was used." in text


@pytest.mark.parametrize("name", ["report.html", "report.md"])
async def test_a_report_lists_the_calls_with_unknown_cost(
    name: str, tmp_path: Path, scorer: Scorer
) -> None:
    directory, client = created(tmp_path, manifest(items(2), arms=("llm",))), LocalClient()
    await run(directory, client, scorer)
    most = UnknownUsage(why="its worker died", prompt=100, completion=50, micro_dollars=1_250_000)
    usage = client.ledger[next(iter(directory.stored().runs))][0]
    update = {"usage": None, "cost_micro_dollars": None, "unknown": most, "discarded": True}
    with Journal(directory) as journal:
        journal.charge([usage.model_copy(update=update)])
    facts = write_reports(directory)
    assert facts.timings["paid"]["unknown"] == 1
    text = (directory.path / name).read_text(encoding="utf-8")
    assert "The cost of 1 more call is unknown" in text
    assert "at most $1.25" in text
    assert "Every paid call was used." not in text


async def test_when_one_run_fails_for_good_the_others_stop_too(
    tmp_path: Path, scorer: Scorer
) -> None:
    class Breaks(LocalClient):
        async def wait(self, run_id: str) -> Trajectory:
            if len(self.runs) == 4:
                raise OutputError("no room")
            await asyncio.Event().wait()
            raise AssertionError

    directory = created(tmp_path, manifest(items(9), arms=("llm",)))
    client = Breaks()
    with pytest.raises(OutputError, match="no room"):
        await run(directory, client, scorer)
    assert len(client.runs) == 4
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert [task for task in others if "_work" in repr(task)] == []


async def test_an_interrupted_bench_admits_nothing_more_and_can_be_resumed(
    tmp_path: Path, scorer: Scorer
) -> None:
    """Runs that do not end in time continue without the bench and are collected later."""
    directory = created(tmp_path, manifest(items(9), arms=("llm",)))
    client, watched = LocalClient(gate=asyncio.Event()), Watched()
    with Journal(directory) as journal:
        runner = Runner(
            directory.manifest(), directory.stored(), journal, client, scorer, watched, grace=0.05
        )
        task = asyncio.create_task(runner.run())
        await watched.reached.wait()
        runner.interrupt()
        assert await task is Ending.INTERRUPTED
        assert runner.unfinished == {"llm": 9}
    assert sum(client.submissions.values()) == 4
    assert client.gate is not None
    client.gate.set()
    assert await run(directory, client, scorer) is Ending.COMPLETE
    assert len(client.runs) == 9


async def test_runs_that_end_within_the_grace_are_recorded(tmp_path: Path, scorer: Scorer) -> None:
    """The runs in flight when Ctrl-C came, and no others."""
    directory = created(tmp_path, manifest(items(9), arms=("llm",)))
    client, watched = LocalClient(gate=asyncio.Event()), Watched()
    with Journal(directory) as journal:
        runner = Runner(
            directory.manifest(), directory.stored(), journal, client, scorer, watched, grace=30
        )
        task = asyncio.create_task(runner.run())
        await watched.reached.wait()
        runner.interrupt()
        assert client.gate is not None
        client.gate.set()
        assert await task is Ending.INTERRUPTED
    assert len(directory.stored().results) == 4


async def test_the_bench_waits_out_a_full_bus_and_an_outage(
    tmp_path: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bench retries admission under the same id."""
    monkeypatch.setattr("loopline.runtime.run_driver.PAUSE_SECONDS", 0.001)
    directory = created(tmp_path, manifest(items(3), arms=("llm",), concurrency=1))
    client, watched = LocalClient(), Watched()
    client.refuse = [Overloaded("full"), BusUnavailable("Redis is away"), Overloaded("full")]
    assert await run(directory, client, scorer, watched) is Ending.COMPLETE
    assert len(client.runs) == 3
    assert watched.notices == ["Redis is away"]


async def test_a_run_gets_its_full_time_once_admitted(
    tmp_path: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bus full of other work is not the model's fault."""
    monkeypatch.setattr("loopline.runtime.run_driver.PAUSE_SECONDS", 0.001)
    deadlines: dict[str, list[float]] = {}

    class Noting(LocalClient):
        async def submit(self, run: Run) -> bool:
            deadlines.setdefault(run.id, []).append(run.deadline)
            return await super().submit(run)

    directory = created(tmp_path, manifest(items(1), arms=("llm",), concurrency=1))
    client = Noting(refuse=[Overloaded("full")])
    assert await run(directory, client, scorer) is Ending.COMPLETE
    [(refused, admitted)] = deadlines.values()
    assert admitted > refused
    assert [tracked_run.deadline for tracked_run in client.runs.values()] == [admitted]


async def test_a_permanent_outage_ends_the_bench_with_its_results_so_far(
    tmp_path: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the bus's own; the directory can be resumed."""
    monkeypatch.setattr("loopline.runtime.run_driver.PAUSE_SECONDS", 0.0001)
    directory = created(tmp_path, manifest(items(3), arms=("llm",), concurrency=1))
    client = LocalClient()
    client.refuse = [BusUnavailable("Redis is away") for _ in range(40)]
    with pytest.raises(BusUnavailable):
        await run(directory, client, scorer)
    client.refuse = []
    assert await run(directory, client, scorer) is Ending.COMPLETE
    assert len(client.runs) == 3


async def test_a_run_without_an_answer_is_wrong_and_stays_in_the_denominator(
    tmp_path: Path, scorer: Scorer
) -> None:
    """It is never left out."""
    directory = created(tmp_path, manifest(items(4), arms=("llm",)))

    class Failing(LocalClient):
        async def wait(self, run_id: str) -> Trajectory:
            trajectory = await super().wait(run_id)
            return trajectory.model_copy(
                update={"outcome": Outcome.ERROR, "reason": "auth: refused", "answer": None}
            )

    await run(directory, Failing(), scorer)
    arm = facts_of(directory).results["arms"]["llm"]
    assert arm["n"] == 4
    assert arm["accuracy"]["numeric"]["right"] == 0
    assert arm["classes"] == {"error": 4}


async def test_two_benches_on_one_directory_are_refused(tmp_path: Path) -> None:
    """Their lines would mix."""
    directory = created(tmp_path, manifest(items(1)))
    with Journal(directory), pytest.raises(OutputError, match="another bench is using"):
        Journal(OutputDirectory(tmp_path)).__enter__()
    with Journal(directory):
        pass


def test_a_directory_with_a_benchmark_is_not_overwritten(tmp_path: Path) -> None:
    """The message explains how to resume."""
    created(tmp_path, manifest(items(1)))
    with pytest.raises(UsageError, match="bench resume"):
        created(tmp_path, manifest(items(1)))


def test_every_arm_gets_the_same_seed_for_a_question() -> None:
    """Paired as far as sampling allows, even in a benchmark that another version resumes."""
    assert seed_of(1, "a") == 1097006557
    assert seed_of(1, "a") != seed_of(2, "a")
    assert seed_of(1, "a") != seed_of(1, "b")


async def test_many_writers_share_a_flush_and_none_returns_before_its_own_is_done() -> None:
    """A hundred admissions cost a few flushes, not a hundred."""
    written = flushed = flushes = 0

    def flush() -> None:
        nonlocal flushed, flushes
        flushed, flushes = written, flushes + 1

    group = GroupFlush(flush)

    async def writer() -> None:
        nonlocal written
        written += 1
        mine = written
        await group()
        assert flushed >= mine

    for _ in range(5):
        await asyncio.gather(*(writer() for _ in range(20)))
    assert written == flushed == 100
    assert flushes <= 20

"""Runs a benchmark's arms on its questions, and continues where an earlier process stopped.

The output directory contains everything needed to resume. A run that has an id there but no result
is submitted again under the same id: the bus returns the run it has, or admits it now. So no
existing answer is paid for twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from loopline.agents.records import Budget, Outcome, Run, Trajectory
from loopline.agents.usage import UsageEntry
from loopline.bench.arms import Arm, override_setting, workflow_options
from loopline.bench.budgets import budget_tags, scope_of
from loopline.bench.journal import Journal
from loopline.bench.judgement import Judge
from loopline.bench.ledger import total
from loopline.bench.output import Manifest, ManifestItem, StoredRuns
from loopline.bench.registry import benchmark_of
from loopline.bench.results import Admission, Result, result_of, transcript_of
from loopline.bus import BudgetExceeded, tasks
from loopline.runtime.client.run_client import RunClient
from loopline.runtime.run_driver import RunDriver, Stopped, lapsed, seed_of

GRACE_SECONDS = 10.0
"""Seconds that runs in flight get to finish after the first Ctrl-C."""


class Ending(StrEnum):
    """Reason why the runner stopped."""

    COMPLETE = "complete"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Job:
    """One question for one arm."""

    arm: Arm
    item: ManifestItem

    @property
    def key(self) -> tuple[str, str]:
        return self.arm.name, self.item.id


class Progress(Protocol):
    """Observer of the progress."""

    def started(self, jobs: int, results: Sequence[Result], spent: int) -> None:
        """Note the start: `jobs` in total, `results` from earlier processes, `spent` micro-dollars
        so far."""
        ...

    def admitted(self, job: Job) -> None: ...

    def finished(self, result: Result, micro_dollars: int) -> None:
        """Note that a run ended; `micro_dollars` were newly booked for it."""
        ...

    def notice(self, text: str) -> None: ...


class Runner:
    """One process's part of a benchmark."""

    def __init__(
        self,
        manifest: Manifest,
        stored: StoredRuns,
        journal: Journal,
        client: RunClient,
        judge: Judge,
        progress: Progress,
        *,
        spent: int = 0,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._manifest = manifest
        self._journal = journal
        self._client = client
        self._judge = judge
        self._judging = asyncio.Lock()
        self._progress = progress
        self._grace = grace
        self._spent = spent
        """Micro-dollars booked so far by all processes. Calls of unknown usage count with the most
        that they can have cost, so that they can't exceed the budget unnoticed."""
        self._began = time.time()
        self._admitted = dict(stored.admitted)
        self._results = dict(stored.results)
        self._costs: dict[str, list[int]] = {arm: [] for arm in manifest.arms}
        for result in stored.results.values():
            self._costs[result.arm].append(result.micro_dollars)
        self._todo = self._jobs()
        self._flying: dict[tuple[str, str], Job] = {}
        self._first = {arm: asyncio.Lock() for arm in manifest.arms}
        self._stop: Ending | None = None
        self._interrupted = asyncio.Event()
        self._driver = RunDriver(client, progress.notice, self._interrupted.is_set)
        self._without_room: set[tuple[str, str]] = set()
        """Jobs that don't fit into a budget until others have ended."""
        self._room = asyncio.Event()
        """Event that is set and replaced when a run ends."""

    async def run(self) -> Ending:
        """Work until everything is answered, the budget is used up, or `interrupt` is called.
        Raises `BusUnavailable` if the bus stays unavailable; stored results remain.
        """
        jobs = len(self._manifest.arms) * len(self._manifest.items)
        self._progress.started(jobs, list(self._results.values()), self._spent)
        places = min(self._manifest.concurrency, max(1, len(self._todo)))
        workers = [asyncio.create_task(self._work()) for _ in range(places)]
        working = asyncio.gather(*workers)
        interrupted = asyncio.create_task(self._interrupted.wait())
        try:
            await asyncio.wait({working, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await asyncio.wait({working}, timeout=self._grace)
            if working.done():
                await working
            else:
                self._stop = Ending.INTERRUPTED
        finally:
            # Cancel each one: when one has failed, `gather` lets the others continue.
            await tasks.end([interrupted, *workers])
        if self._stop is None or not self._unfinished():
            await self._charge_late_entries()
            return Ending.COMPLETE
        return self._stop

    def interrupt(self) -> None:
        """Admit no more runs, and give those in flight a little time."""
        self._stop = self._stop or Ending.INTERRUPTED
        self._interrupted.set()

    @property
    def in_flight(self) -> int:
        """Number of runs that were admitted and have not ended."""
        return len(self._flying)

    @property
    def unfinished(self) -> dict[str, int]:
        """Number of questions without a result, by arm."""
        remaining = self._unfinished()
        counts = {name: sum(key[0] == name for key in remaining) for name in self._manifest.arms}
        return {name: count for name, count in counts.items() if count}

    def _unfinished(self) -> list[tuple[str, str]]:
        return [
            (arm, item.id)
            for item in self._manifest.items
            for arm in self._manifest.arms
            if (arm, item.id) not in self._results
        ]

    def _jobs(self) -> deque[Job]:
        """Remaining jobs: first those that were in flight, then question by question through all
        arms, so that a benchmark that stops early has pairs to compare."""
        offered = benchmark_of(self._manifest).arms_for(self._manifest.reference)
        arms = offered.named(self._manifest.arms)
        remaining = [
            Job(arm, item)
            for item in self._manifest.items
            for arm in arms
            if (arm.name, item.id) not in self._results
        ]
        admitted_jobs = [job for job in remaining if job.key in self._admitted]
        return deque([*admitted_jobs, *(job for job in remaining if job.key not in self._admitted)])

    async def _work(self) -> None:
        while self._stop is None and self._todo:
            job = self._todo[0]
            if not self._has_no_price(job):
                await self._next()
                continue
            # The cost of this arm's runs is unknown, so its first run goes alone.
            async with self._first[job.arm.name]:
                if self._stop is None and self._todo and self._has_no_price(self._todo[0]):
                    await self._next()

    async def _next(self) -> None:
        if self._exceeds_budget(self._todo[0]):
            self._stop = Ending.BUDGET
            return
        job = self._todo.popleft()
        self._flying[job.key] = job
        try:
            await self._answer(job)
        finally:
            self._flying.pop(job.key, None)
            self._room.set()
            self._room = asyncio.Event()

    def _has_no_price(self, job: Job) -> bool:
        return (
            self._manifest.budget_micro_dollars is not None
            and job.key not in self._admitted
            and not self._costs[job.arm.name]
        )

    def _exceeds_budget(self, job: Job) -> bool:
        """Whether one more run would exceed the budget, given the mean cost of each arm's runs so
        far."""
        budget = self._manifest.budget_micro_dollars
        if budget is None or job.key in self._admitted:
            return False
        expected = self._expected_cost(job.arm.name) + sum(
            self._expected_cost(arm) for arm, _ in self._flying
        )
        return self._spent + expected > budget or self._spent >= budget

    def _expected_cost(self, arm: str) -> float:
        costs = self._costs[arm]
        return sum(costs) / len(costs) if costs else 0.0

    async def _answer(self, job: Job) -> None:
        admission = self._admitted.get(job.key)
        run = self._run(job, admission)
        if admission is None:
            self._admitted[job.key] = run.id
            await self._journal.admit(Admission(run_id=run.id, arm=job.arm.name, item=job.item.id))
        try:
            trajectory, entries = await self._finish(job, run.id)
        except Stopped:
            return
        if self._ran_out(trajectory):
            self._spent += total(self._journal.charge(entries)).most_micro_dollars
            # Another run will answer it later, within a later budget.
            del self._admitted[job.key]
            if trajectory.ended < self._began:
                await self._answer(job)
            else:
                self._stop = self._stop or Ending.BUDGET
            return
        if admission is not None and lapsed(trajectory, self._began):
            self._spent += total(self._journal.charge(entries)).most_micro_dollars
            del self._admitted[job.key]
            await self._answer(job)
            return
        await self._record(job, trajectory, entries)

    async def _finish(self, job: Job, run_id: str) -> tuple[Trajectory, list[UsageEntry]]:
        """Wait for the run's end; if a budget has no room for it, retry once others have ended.
        Raises `Stopped`."""
        while True:
            try:
                return await self._driver.finish(
                    lambda: self._run(job, run_id), lambda: self._progress.admitted(job)
                )
            except BudgetExceeded as error:
                if self._flying.keys() - self._without_room == {job.key} or self._stop is not None:
                    if self._stop is None:
                        self._progress.notice(str(error))
                    self._stop = self._stop or Ending.BUDGET
                    raise Stopped from error
            self._without_room.add(job.key)
            try:
                await self._room.wait()
            finally:
                self._without_room.discard(job.key)

    def _ran_out(self, trajectory: Trajectory) -> bool:
        """Whether the benchmark's budget ended a run, which shows nothing about the model."""
        scope = repr(scope_of(self._manifest))
        return trajectory.outcome is Outcome.BUDGET and scope in (trajectory.reason or "")

    def _run(self, job: Job, run_id: str | None) -> Run:
        """Build the run of a question; `run_id` is the id under which it was admitted, if any."""
        manifest = self._manifest
        environment, instance = job.item.task or (manifest.benchmark, {"item": job.item.id})
        if job.arm.setting:
            instance = override_setting(instance, job.arm.setting)
        return self._client.new_run(
            job.item.question,
            workflow=job.arm.workflow,
            policies={**job.arm.policies, **manifest.policies.get(job.arm.name, {})},
            options=workflow_options(
                job.arm,
                manifest.options,
                calculator=manifest.calculator,
                prompts=manifest.prompt_set,
            ),
            seed=seed_of(manifest.seed, job.item.id),
            budget=Budget(seconds=manifest.run_seconds),
            tags={
                "bench": manifest.benchmark,
                "arm": job.arm.name,
                "item": job.item.id,
                # Trainers use this tag to recognize runs reserved for measuring.
                "split": str(job.item.about.get("split", manifest.split)),
                **budget_tags(manifest),
            },
            environment=environment,
            instance=instance,
            run_id=run_id,
        )

    async def _record(self, job: Job, trajectory: Trajectory, entries: list[UsageEntry]) -> None:
        async with self._judging:
            judgement = await asyncio.to_thread(self._judge.judge, trajectory, job.item)
        values = job.item.about.get("values")
        result = result_of(
            trajectory,
            entries,
            arm=job.arm.name,
            item=job.item.id,
            judgement=judgement,
            reference_values=tuple(map(str, values)) if isinstance(values, list) else (),
        )
        added = await self._journal.finish(result, transcript_of(trajectory), entries)
        self._results[job.key] = result
        newly = total(added).most_micro_dollars
        self._spent += newly
        self._costs[job.arm.name].append(result.micro_dollars)
        self._progress.finished(result, newly)

    async def _charge_late_entries(self) -> None:
        """Book paid but unused calls that became known after their runs had ended."""
        runs = [result.run_id for result in self._results.values()]
        for start in range(0, len(runs), 32):
            chunk = runs[start : start + 32]
            entry_lists = await asyncio.gather(*(self._client.usage(run_id) for run_id in chunk))
            for entries in entry_lists:
                self._spent += total(self._journal.charge(entries)).most_micro_dollars

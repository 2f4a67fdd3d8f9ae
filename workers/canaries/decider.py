"""The part of a recorder that judges canaries: it reads new records from the store, admits shadow
runs, and promotes or rolls back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import structlog
from pydantic import JsonValue

from loopline.agents.records import Run, Trajectory
from loopline.agents.tools.threads import run_in_own_thread
from loopline.bus import (
    BudgetExceeded,
    Bus,
    MessageTooLarge,
    Overloaded,
    PolicyError,
    live_workers,
    policies,
)
from loopline.bus.canaries import Canary, is_shadow, shadow_run_id
from loopline.bus.connection import OUTAGE, pause_before
from loopline.bus.policies import Policy
from loopline.workers.canaries import in_words
from loopline.workers.canaries.judgement import Pair, Verdict, judge, pairs_of
from loopline.workers.canaries.records import RunRecord, record_of, scores_of
from loopline.workers.canaries.shadows import NoShadow, admit_shadow, shadow_of
from loopline.workers.store.files import find_run_rows
from loopline.workers.store.recent import RecentRuns

log = structlog.get_logger("loopline.workers.canaries")

MAX_SHADOWS = 100
"""Maximum number of shadow runs admitted per evaluation: runs with a waiting caller come first."""


class CanaryDecider:
    """Evaluates canaries periodically. Any number of recorders may do so: the bus accepts one
    decision, and admits each shadow run once."""

    def __init__(self, bus: Bus, store: Path, name: str, pause: float) -> None:
        """`name`: the name of the decider in the log. `pause`: seconds between two evaluations."""
        self._bus = bus
        self._store = store
        self._name = name
        self._pause = pause
        self._draining = asyncio.Event()
        self._recent: RecentRuns[RunRecord] | None = None
        self._verdicts: dict[str, tuple[Canary, tuple[Pair, ...], Verdict]] = {}
        self._shadows: set[str] = set()
        """Ids of shadow runs that need not be admitted again."""
        self._without_shadow: Counter[str] = Counter()
        """Policy → ids of runs that can't be replayed."""

    def drain(self) -> None:
        self._draining.set()

    def details(self) -> dict[str, dict[str, JsonValue]]:
        """Policy → result of its canary's comparison so far, for the recorder's presence."""
        return {
            name: verdict.evidence
            | {"in_words": in_words(verdict.evidence)}
            | {"without_shadow": self._without_shadow[name]}
            for name, (_, _, verdict) in self._verdicts.items()
        }

    async def run(self) -> None:
        """Judge canaries until drained. A failure is logged and tried again: a late evaluation
        loses nothing."""
        failures = 0
        while not self._draining.is_set():
            try:
                await self._look()
                failures = 0
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failures += 1
                if failures & (failures - 1) == 0:
                    log.error(
                        "canaries not evaluated", error=str(error), kind=type(error).__name__,
                        exc_info=not isinstance(error, OUTAGE),
                    )  # fmt: skip
            pause = self._pause + (pause_before(failures) if failures else 0.0)
            try:
                async with asyncio.timeout(pause):
                    await self._draining.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        stored = await policies.load_policies(self._bus)
        trials = {
            policy.name: (policy, policy.canary)
            for policy in stored.policies
            if policy.canary is not None
        }
        for name in self._verdicts.keys() - trials.keys():
            del self._verdicts[name]
        if not trials:
            self._recent = None
            self._shadows.clear()
            self._without_shadow.clear()
            return
        since = min(canary.since for _, canary in trials.values())
        if self._recent is None or since < self._recent.since:
            self._recent = RecentRuns(self._store, since, record_of)
        recent = self._recent
        await run_in_own_thread(recent.read_new)
        refusals = await self._refusals()
        for name, (_, canary) in trials.items():
            refusal = refusals.get((name, canary.version, canary.since), "")
            verdict = await run_in_own_thread(partial(self._judge, name, canary, recent, refusal))
            if verdict.decision is not None:
                await self._decide(name, canary, verdict)
            elif canary.mode == "shadow":
                await self._admit_shadows(name, canary, recent)

    async def _refusals(self) -> Mapping[tuple[str, int, float], str]:
        """Policy, version and start of canaries that a worker can't serve, and why."""
        refusals: dict[tuple[str, int, float], str] = {}
        for worker in await live_workers(self._bus):
            for name, state in worker.details.get("policies", {}).items():
                if state.get("canary_refused"):
                    place = name, state["canary"], state["canary_since"]
                    refusals[place] = f"{worker.name}: {state['canary_refused']}"
        return refusals

    def _judge(
        self, name: str, canary: Canary, recent: RecentRuns[RunRecord], refusal: str
    ) -> Verdict:
        pairs = tuple(pairs_of(name, canary, recent.runs, scores_of(recent)))
        last = self._verdicts.get(name)
        if last is not None and last[:2] == (canary, pairs) and not refusal:
            return last[2]
        verdict = judge(canary, pairs, refusal)
        self._verdicts[name] = canary, pairs, verdict
        return verdict

    async def _decide(self, name: str, canary: Canary, verdict: Verdict) -> None:
        """Decide once, even if others decide the same at this moment, and write the log entry."""

        def decided(policy: Policy) -> Policy:
            if verdict.decision == "promote":
                return policy.promoted(canary)
            return policy.without_canary(canary)

        try:
            await policies.change(
                self._bus, name, decided, by=self._name, evidence=verdict.evidence
            )
        except PolicyError as error:
            log.info("canary already decided elsewhere", policy=name, why=str(error))
            return
        log.warning(
            "canary decided", policy=name, version=canary.version, decision=verdict.decision,
            why=in_words(verdict.evidence),
        )  # fmt: skip

    async def _admit_shadows(
        self, name: str, canary: Canary, recent: RecentRuns[RunRecord]
    ) -> None:
        admitted = 0
        for run_id, record in recent.runs.items():
            shadow_id = shadow_run_id(run_id, name, canary)
            if (
                admitted >= MAX_SHADOWS
                or shadow_id in self._shadows
                or shadow_id in recent.runs
                or is_shadow(run_id)
                or name in record.pinned
                or not canary.takes(name, run_id)
                or record.versions.get(name) != frozenset((canary.against,))
            ):
                continue
            try:
                run = await run_in_own_thread(partial(self._read_run, run_id))
                if run is None:
                    continue
                shadow = shadow_of(run, name, canary, self._bus.clock.now())
                await admit_shadow(self._bus, shadow)
                admitted += 1
            except (Overloaded, BudgetExceeded) as error:
                log.info("shadow runs wait", policy=name, why=str(error))
                return
            except (NoShadow, MessageTooLarge) as error:
                self._without_shadow[name] += 1
                log.info("no shadow run", policy=name, run=run_id, why=str(error))
            self._shadows.add(shadow_id)

    def _read_run(self, run_id: str) -> Run | None:
        body = find_run_rows(self._store / "trajectories", run_id).newest
        return None if body is None else Trajectory.model_validate_json(body).run

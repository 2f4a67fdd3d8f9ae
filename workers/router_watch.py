"""Checks the routers in use against their error bound, by audited runs of the workflow `cascade`:
in the recorder while they serve, and by `train watch-router` from any store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from pydantic import JsonValue, ValidationError

from loopline.agents.records import Outcome, Trajectory
from loopline.agents.rewards import Reward
from loopline.agents.router.router import Router
from loopline.agents.router.watching import Audited, Watched, audited, watched
from loopline.agents.tools.threads import run_in_own_thread
from loopline.agents.workflows.cascade import is_audited
from loopline.bus.canaries import admitted_ms, is_shadow
from loopline.workers.atomic_files import write_atomic
from loopline.workers.file_lock import FileLock
from loopline.workers.store.recent import RecentRuns
from loopline.workers.store.records import Skipped, iterate_trajectories
from loopline.workers.store.rewards import Feedback, own_targets, read_rewards

log = structlog.get_logger("loopline.workers.router_watch")

RIGHT_FROM = 0.5
"""Minimum reward of a correct answer."""
LOOK_BACK_SECONDS = 3_600.0
"""How far before its start a recorder looks for routers in use."""


def verdict_of(trajectory: Trajectory, rewards: Mapping[str, list[Reward]]) -> bool | None:
    """Whether the run's answer is correct according to feedback; None if unknown."""
    names = own_targets(trajectory.run)
    team = Feedback.of(reward for name in names for reward in rewards.get(name, [])).team
    if team is not None:
        return team >= RIGHT_FROM
    if trajectory.outcome in (Outcome.SOLVED, Outcome.FAILED):
        return trajectory.outcome is Outcome.SOLVED
    return None


def has_audit(trajectory: Trajectory) -> bool:
    """Whether both models answered because the run was selected for an audit."""
    agents = {step.agent for step in trajectory.steps if step.calls}
    return (
        trajectory.run.workflow == "cascade"
        and {"first", "solo"} <= agents
        and is_audited(trajectory.run)
        and not is_shadow(trajectory.run.id)
    )


def audited_runs(store: Path) -> list[Audited]:
    """Return the audited runs in the order of their admission. Raises `NoRecords` if there is no
    store."""
    rewards = read_rewards(store).of_target()
    skipped: list[Skipped] = []
    runs = (
        audited(trajectory).judged(verdict_of(trajectory, rewards))
        for trajectory in iterate_trajectories(store, "cascade", skipped)
        if has_audit(trajectory)
    )
    return sorted((run for run in runs if run is not None), key=lambda run: run.run_id)


def tighten(path: Path, runs: Callable[[Router], list[Audited]]) -> Watched:
    """Check a router file once, and tighten it if the alarm is raised. Of several concurrent
    callers only one does so. Raises ValidationError for a file that is not a router, OSError, and
    BlockingIOError while another caller changes it."""
    lock = FileLock(path.parent)
    lock.acquire()
    try:
        router = Router.model_validate_json(path.read_bytes())
        result = watched(router, runs(router))
        if result.alarm is not None:
            write_atomic(path, result.router.model_dump_json(indent=1) + "\n")
        return result
    finally:
        lock.release()


@dataclass(frozen=True)
class _Audit:
    head: Trajectory
    """Trajectory without its steps."""
    run: Audited


class RouterWatch:
    """The part of a recorder that watches the routers of the cascades that it records. The router
    files are its only state: the successor of a killed recorder resumes from them."""

    def __init__(self, store: Path, now: float, pause: float) -> None:
        """`now`: Unix seconds. `pause`: seconds between two checks."""
        self._store = store
        self._pause = pause
        self._draining = asyncio.Event()
        self._used = RecentRuns(store, now - LOOK_BACK_SECONDS, _router_of, "cascade")
        self._audits: dict[str, RecentRuns[_Audit]] = {}
        self._details: dict[str, dict[str, JsonValue]] = {}

    def drain(self) -> None:
        self._draining.set()

    def details(self) -> dict[str, dict[str, JsonValue]]:
        """Router file → the watch's report, for the recorder's presence."""
        return dict(self._details)

    async def run(self) -> None:
        """Watch the routers until drained."""
        while not self._draining.is_set():
            try:
                await run_in_own_thread(self._look)
            except Exception as error:  # noqa: BLE001 - a disk that is away must not end it
                log.error("routers not watched", error=str(error), kind=type(error).__name__)
            try:
                async with asyncio.timeout(self._pause):
                    await self._draining.wait()
            except TimeoutError:
                continue

    def _look(self) -> None:
        self._used.read_new()
        for name in sorted(set(self._used.runs.values())):
            try:
                result = tighten(Path(name), partial(self._runs_since, name))
            except BlockingIOError:
                continue  # The next check comes soon.
            except (OSError, ValidationError) as error:
                words = f"can't be watched from the recorder's machine: {error}"
                self._details[name] = {"error": words[:300]}
                continue
            if result.alarm is not None:
                log.error("router tightened", router=name, why=result.summary)
            self._details[name] = {
                "in_words": result.summary,
                "runs": result.runs,
                "errors": result.errors,
                "waiting": result.waiting,
                "evidence": round(result.capital, 3),
                "alarms": result.router.alarms,
                "threshold": result.router.threshold,
            }

    def _runs_since(self, name: str, router: Router) -> list[Audited]:
        """Audited runs that were not used to choose the router's present threshold."""
        since = admitted_ms(router.watched_after) / 1000
        recent = self._audits.get(name)
        if recent is None or recent.since > since:
            keep = partial(_audit_of, name)
            self._audits[name] = recent = RecentRuns(self._store, since, keep, "cascade")
        recent.read_new()
        rewards = recent.posted.of_target()
        runs = (audit.run.judged(verdict_of(audit.head, rewards)) for audit in recent.runs.values())
        return sorted((run for run in runs if run is not None), key=lambda run: run.run_id)


def _router_of(trajectory: Trajectory) -> str | None:
    if not has_audit(trajectory):
        return None
    router = trajectory.run.options.get("router")
    return router if isinstance(router, str) else None


def _audit_of(name: str, trajectory: Trajectory) -> _Audit | None:
    if _router_of(trajectory) != name:
        return None
    return _Audit(trajectory.model_copy(update={"steps": ()}), audited(trajectory))

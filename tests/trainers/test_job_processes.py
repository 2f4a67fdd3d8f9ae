"""Jobs in processes: stopped, killed and failing ones. A shell script replaces the program that
does them, which has its own tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pydantic import BaseModel

from loopline.trainers.core.job_processes import JobLine, run_jobs
from loopline.trainers.errors import TrainingError

WORKER = """#!/bin/sh
say() { echo '{"event":"'$1'","message":"'"$2"'"}'; }
on_interrupt='exit 130'
while read -r job; do
  case "$job" in *'"stubborn"'*) on_interrupt='' ;; esac
  trap "$on_interrupt" INT
  case "$job" in
    *'"quick"'*) say finished $$ ;;
    *'"failing"'*) say failed 'no room' ;;
    *'"dying"'*) say training; kill -9 $$ ;;
    *) while :; do say training; sleep 0.02; done ;;
  esac
done
"""


@pytest.fixture(autouse=True)
def _worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    script = tmp_path / "worker"
    script.write_text(WORKER)
    script.chmod(0o755)
    monkeypatch.setattr("loopline.trainers.core.job_processes.OWN_PYTHON", (str(script),))


class Named(BaseModel, frozen=True):
    """A job whose name says how it ends."""

    kind: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


def jobs(*kinds: str) -> list[Named]:
    return [Named(kind=kind, number=number) for number, kind in enumerate(kinds, start=1)]


class Watched:
    """Counts messages, and interrupts this process that many times, once per message of a
    training."""

    def __init__(self, interrupts: int = 0) -> None:
        self.events: Counter[str] = Counter()
        self.interrupts = interrupts

    def __call__(self, job: Named, event: JobLine) -> None:
        self.events[event.event] += 1
        if event.event == "training" and self.interrupts:
            self.interrupts -= 1
            os.kill(os.getpid(), signal.SIGINT)


async def do(
    wanted: list[Named],
    output: Path,
    processes: int,
    watched: Callable[[Named, JobLine], None],
    ready: Callable[[Named], bool] = lambda job: True,
) -> bool:
    return await run_jobs(wanted, "a.module", output, processes, watched, ready)


async def test_every_job_is_done_once_with_any_number_of_processes(tmp_path: Path) -> None:
    for processes in (1, 3, 20):
        watched = Watched()
        assert await do(jobs(*["quick"] * 9), tmp_path, processes, watched)
        assert watched.events == {"finished": 9}


@pytest.mark.parametrize("processes", [1, 3])
async def test_every_job_has_its_own_process_that_ends_with_it(
    tmp_path: Path, processes: int
) -> None:
    pids, at_once = list[int](), list[int]()

    def watch(job: Named, event: JobLine) -> None:
        pids.append(int(event.message))
        at_once.append(sum(psutil.pid_exists(pid) for pid in pids))

    assert await do(jobs(*["quick"] * 9), tmp_path, processes, watch)
    assert len(set(pids)) == 9
    assert max(at_once) <= processes
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_ctrl_c_between_two_jobs_starts_no_other(tmp_path: Path) -> None:
    watched = Watched()

    def interrupt(job: Named, event: JobLine) -> None:
        watched(job, event)
        os.kill(os.getpid(), signal.SIGINT)

    assert not await do(jobs("quick", "quick", "quick"), tmp_path, 1, interrupt)
    assert watched.events == {"finished": 1}


async def test_an_empty_list_of_jobs_is_done_at_once(tmp_path: Path) -> None:
    assert await do([], tmp_path, 2, Watched())


async def test_ctrl_c_stops_the_running_jobs_and_starts_no_other(tmp_path: Path) -> None:
    watched = Watched(interrupts=1)
    assert not await do(jobs("quick", "slow", "slow", "quick"), tmp_path, 1, watched)
    assert watched.events["finished"] == 1


async def test_a_second_ctrl_c_ends_a_process_that_does_not_stop(tmp_path: Path) -> None:
    # Simultaneous interrupts count as one.
    assert not await do(jobs("stubborn"), tmp_path, 1, Watched(interrupts=1_000))


@pytest.mark.parametrize(
    ("kind", "message"),
    [("failing", "failing 2: no room"), ("dying", "dying 2: .* killed by signal 9")],
)
async def test_a_failing_job_stops_the_others(kind: str, message: str, tmp_path: Path) -> None:
    watched = Watched()
    with pytest.raises(TrainingError, match=message):
        await do(jobs("slow", kind, "quick"), tmp_path, 2, watched)
    assert watched.events["finished"] == 0


@pytest.mark.parametrize("processes", [1, 2, 5])
async def test_a_job_starts_when_its_prerequisites_are_done(tmp_path: Path, processes: int) -> None:
    queue, finished = jobs("quick", "quick", "quick", "quick"), list[int]()

    def watch(job: Named, event: JobLine) -> None:
        finished.append(job.number)

    def after_the_next(job: Named) -> bool:
        return job.number == 4 or job.number + 1 in finished

    assert await do(queue, tmp_path, processes, watch, after_the_next)
    assert finished == [4, 3, 2, 1]


async def test_jobs_stop_waiting_for_a_job_that_fails(tmp_path: Path) -> None:
    def only_the_failing_one(job: Named) -> bool:
        return job.kind == "failing"

    with pytest.raises(TrainingError, match="failing 1: no room"):
        await do(jobs("failing", "quick"), tmp_path, 2, Watched(), only_the_failing_one)


async def test_a_job_that_can_never_start_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="quick 1 cannot start: its inputs do not exist"):
        await do(jobs("quick"), tmp_path, 1, Watched(), lambda job: False)

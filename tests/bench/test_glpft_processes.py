"""The processes that do the cells of `bench glpft`: stopped, killed and failing ones. A shell
script stands in for the worker, which has its own tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.glpft.plan import Cell, SizePlan
from bench.glpft.processes import do_all
from bench.glpft.worker import Told
from tests.trainers.tiny_glpft import SIZE

WORKER = """#!/bin/sh
say() { echo '{"event":"'$1'","said":"'"$2"'"}'; }
on_interrupt='exit 130'
while read -r cell; do
  case "$cell" in *'"stubborn"'*) on_interrupt='' ;; esac
  trap "$on_interrupt" INT
  case "$cell" in
    *'"quick"'*) say finished ;;
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
    monkeypatch.setattr("bench.glpft.processes.sys.executable", str(script))


def cells(*sizes: str) -> list[Cell]:
    plan = SizePlan(size=SIZE, tokens=1)
    return [
        Cell(size=size, method="single", seed=seed, plan=plan)
        for seed, size in enumerate(sizes, start=1)
    ]


class Watched:
    """Counts what is told, and interrupts this process so often: at each word of a training."""

    def __init__(self, interrupts: int = 0) -> None:
        self.events: Counter[str] = Counter()
        self.interrupts = interrupts

    def __call__(self, cell: Cell, told: Told) -> None:
        self.events[told.event] += 1
        if told.event == "training" and self.interrupts:
            self.interrupts -= 1
            os.kill(os.getpid(), signal.SIGINT)


async def test_every_cell_is_done_once_however_many_processes_there_are(tmp_path: Path) -> None:
    for jobs in (1, 3, 20):
        watched = Watched()
        assert await do_all(cells(*["quick"] * 9), tmp_path, jobs, watched)
        assert watched.events == {"finished": 9}


async def test_ctrl_c_stops_the_cells_in_work_and_begins_no_other(tmp_path: Path) -> None:
    watched = Watched(interrupts=1)
    assert not await do_all(cells("quick", "slow", "slow", "quick"), tmp_path, 1, watched)
    assert watched.events["finished"] == 1


async def test_a_second_ctrl_c_ends_a_process_that_does_not_stop(tmp_path: Path) -> None:
    # Interrupts that come at once count as one.
    assert not await do_all(cells("stubborn"), tmp_path, 1, Watched(interrupts=1_000))


@pytest.mark.parametrize(
    ("kind", "message"),
    [("failing", "failing single 2: no room"), ("dying", "dying single 2: .* killed by signal 9")],
)
async def test_a_cell_that_cannot_be_done_stops_the_others(
    kind: str, message: str, tmp_path: Path
) -> None:
    watched = Watched()
    with pytest.raises(BenchError, match=message):
        await do_all(cells("slow", kind, "quick"), tmp_path, 2, watched)
    assert watched.events["finished"] == 0

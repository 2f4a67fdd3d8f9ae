"""The complete path on a real bus: worker processes, the console script, SIGKILL, resume."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.ledger import read_ledger, total
from loopline.runtime.client.client import Client
from tests.bench.bench_process import COMMAND, deployable
from tests.bench.benchmarks import items
from tests.workers.processes import deployment, workers_running

QUESTIONS = 12


def results_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "report.json").read_text())["results"]


@pytest.mark.timeout(400)
@pytest.mark.slow
async def test_a_bench_that_is_killed_again_and_again_ends_with_the_same_report(
    tmp_path: Path,
) -> None:
    """Killed after some results, resumed only from its directory; every answer on the bus is
    collected and not requested again, and the ledger equals the bus's own."""
    data = tmp_path / "test.jsonl"
    rows = [{"question": i.question, "answer": f"#### {i.gold}"} for i in items(QUESTIONS)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with deployable(tmp_path, "scripted") as (bus, environment):
        async with workers_running(deployment(bus, tmp_path / "store"), tmp_path / "workers"):

            def bench(*arguments: str, kill_at: int | None = None) -> int:
                """Run to the end, or until that many lines of results are on disk."""
                process = subprocess.Popen(
                    [*COMMAND, *arguments],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                results = tmp_path / "killed" / "items.jsonl"
                while kill_at is not None and process.poll() is None:
                    if results.exists() and results.read_bytes().count(b'"result"') >= kill_at:
                        process.send_signal(signal.SIGKILL)
                        break
                    time.sleep(0.002)
                _, errors = process.communicate()
                assert process.returncode in {0, -signal.SIGKILL}, errors
                return process.returncode

            options = ("gsm8k", "--data", str(data), "--concurrency", "4", "--json")
            assert bench(*options, "--output", str(tmp_path / "whole")) == 0
            killed = str(tmp_path / "killed")
            bench(*options, "--output", killed, kill_at=2)
            for kill_at in (9, 17, 30):
                bench("resume", killed, kill_at=kill_at)
            assert bench("resume", killed, "--json") == 0
            assert results_of(tmp_path / "killed") == results_of(tmp_path / "whole")
            arms = results_of(tmp_path / "killed")["arms"]
            assert [arm["accuracy"]["numeric"]["right"] for arm in arms.values()] == [12, 12, 12]
            admitted = [
                json.loads(line)
                for line in (tmp_path / "killed" / "items.jsonl").read_text().splitlines()
                if '"admitted"' in line
            ]
            assert len({line["run_id"] for line in admitted}) == len(admitted) == 3 * QUESTIONS
            async with Client.connect(bus) as client:
                booked = [
                    entry for line in admitted for entry in await client.usage(line["run_id"])
                ]
            assert total(read_ledger(tmp_path / "killed" / "ledger.jsonl")) == total(booked)

"""The bench distinguishes failed runs from wrong answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from loopline.agents.records import Outcome, Trajectory
from loopline.bench.session import conduct, show, summary_line
from loopline.runtime.errors import EXIT_FAILED, EXIT_OK
from tests.bench.benchmarks import connected, created, items, manifest
from tests.bench.local_client import LocalClient

BURIED = "dead letter: failed attempts: 5; last: unavailable"


@dataclass
class Breaking(LocalClient):
    """Breaks only the runs of one pool; `answers` of these succeed."""

    answers: int = 0
    reason: str = BURIED

    async def wait(self, run_id: str) -> Trajectory:
        trajectory = await super().wait(run_id)
        if trajectory.run.policies != {"solo": "llm"}:
            return trajectory
        if self.answers:
            self.answers -= 1
            return trajectory
        late = len(self.ended) == 1
        outcome = Outcome.DEADLINE if late else Outcome.ERROR
        return trajectory.model_copy(
            update={"steps": (), "outcome": outcome, "answer": None, "reason": self.reason}
        )


@pytest.mark.parametrize("answer_count", [0, 1])
async def test_failed_runs_are_counted_after_the_table_and_an_arm_with_no_other_run_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer_count: int
) -> None:
    directory = created(tmp_path, manifest(items(4), concurrency=1))
    ended = await conduct(directory, lambda: connected(Breaking(answers=answer_count)))
    assert ended.exit_code == (EXIT_OK if answer_count else EXIT_FAILED)
    parts = "error 3" if answer_count else "error 3, deadline 1"
    notice = (
        f"{4 - answer_count} of 12 runs ended in errors ({parts}): "
        "`runtime dead ls` lists the dead letters"
    )
    show(ended, as_json=False)
    table, _, after = capsys.readouterr().out.partition(notice)
    assert "accuracy" in table
    assert "Report:" in after
    line = json.loads(json.dumps(summary_line(ended)))
    assert notice in line["notices"]
    assert line["arms"]["llm"]["outcomes"]["error"] == 3
    assert line["arms"]["slm"]["outcomes"] == {"answered": 4}


async def test_without_dead_letters_the_notice_points_to_the_report(tmp_path: Path) -> None:
    directory = created(tmp_path, manifest(items(2), arms=("llm",)))
    ended = await conduct(directory, lambda: connected(Breaking(reason="auth: no key")))
    assert ended.facts is not None
    [message] = [notice for notice in ended.facts.notices if "ended in errors" in notice]
    assert message.endswith(": the report says why")


async def test_wrong_answers_are_not_errors(tmp_path: Path) -> None:
    directory = created(tmp_path, manifest(items(2, wrong=[0, 1]), arms=("llm",)))
    ended = await conduct(directory, lambda: connected(LocalClient()))
    assert ended.facts is not None
    assert (ended.facts.notices, ended.exit_code) == ([], EXIT_OK)

"""Run ids are on disk before their runs are admitted."""

from __future__ import annotations

from pathlib import Path

from loopline.runtime.admitted_runs import AdmittedRuns


def opened(path: Path) -> AdmittedRuns:
    return AdmittedRuns(path, resume="the same command", failure=ValueError)


def test_a_process_that_was_killed_resumes_waiting_for_the_same_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with opened(path) as runs:
        first, second = runs.run_id("a question"), runs.run_id("another")
        assert first != second
        assert runs.run_id("a question") == first
    with opened(path) as runs:
        assert (runs.run_id("another"), runs.run_id("a question")) == (second, first)


def test_an_id_whose_line_is_truncated_is_drawn_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with opened(path) as runs:
        first, second = runs.run_id("a question"), runs.run_id("another")
    path.write_bytes(path.read_bytes()[:-5])
    with opened(path) as runs:
        assert runs.run_id("a question") == first
        drawn = runs.run_id("another")
        assert drawn not in (first, second)
    with opened(path) as runs:
        assert runs.run_id("another") == drawn

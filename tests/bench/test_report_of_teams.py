"""A team benchmark's report on how its runs were played."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.bench.datasets import Request
from loopline.bench.output import OutputDirectory
from loopline.bench.runner import Ending
from loopline.bench.session import BenchOutcome, show, summary_line
from tests.bench.benchmarks import measured
from tests.bench.puzzle_client import PuzzleClient, manifest


def sudokus(samples: int) -> Request:
    return Request("test", samples, seed=7, choices={"game": "sudoku"})


@pytest.mark.slow
def test_every_report_format_states_how_completions_were_sampled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best of several candidates, chosen by the rules, differs from a single answer."""
    bench_manifest = manifest(sudokus(2), candidates=8, temperature=0.7)
    facts = measured(tmp_path / "out", bench_manifest, PuzzleClient())
    ended = BenchOutcome(Ending.COMPLETE, OutputDirectory(tmp_path / "out"), facts)
    show(ended, as_json=False)
    line = "Options: candidates 8, temperature 0.7."
    for text in (
        capsys.readouterr().out,
        (tmp_path / "out" / "report.md").read_text(),
        (tmp_path / "out" / "report.html").read_text(),
    ):
        assert line in text
    assert summary_line(ended)["options"] == {"candidates": 8, "temperature": 0.7}


@pytest.mark.slow
def test_truncated_completions_are_counted_and_the_limit_is_shown(tmp_path: Path) -> None:
    bench_manifest = manifest(sudokus(3), greedy=True, max_tokens=64)
    whole = measured(tmp_path / "whole", bench_manifest, PuzzleClient())
    cut = measured(tmp_path / "cut", bench_manifest, PuzzleClient(finish="length"))
    assert whole.notices == []
    [notice] = cut.notices
    assert "in 3 of 3 runs, a completion was truncated after 64 tokens" in notice
    assert "--set options.pair.max_tokens=NUMBER" in notice

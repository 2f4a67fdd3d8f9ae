"""Logs that we export, read with inspect's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.bench.interchange.exports import export
from loopline.bench.interchange.imported import import_evaluation, read_evaluation
from loopline.bench.output import OutputDirectory
from tests.bench.finished_benchmark import finished_benchmark
from tests.bench.foreign_logs import TWO_EPOCHS
from tests.clients.foreign_reader import read_by_inspect

pytestmark = pytest.mark.slow


def test_inspect_reads_an_exported_benchmark(tmp_path: Path) -> None:
    directory = OutputDirectory(finished_benchmark(tmp_path / "sums"))
    path = export(directory, "inspect", tmp_path / "export")[0]
    log = read_by_inspect(path)
    assert (log["status"], log["model"], log["task"]) == ("success", "loopline/llm", "sums")
    assert log["metrics"]["numeric"] == 7 / 8
    assert [sample["scores"]["numeric"] for sample in log["samples"]] == list("CCCICCCC")
    sample = log["samples"][0]
    assert (sample["id"], sample["epoch"], sample["roles"]) == (
        "sums/test/0", 1, ["user", "assistant"],
    )  # fmt: skip
    assert sum(sample["tokens"].values()) > 0
    assert (log["summaries"], log["looked_up"]) == (8, "sums/test/0")


def test_inspect_reads_attempts_as_epochs(tmp_path: Path) -> None:
    imported = import_evaluation(read_evaluation(TWO_EPOCHS), "match")
    directory = imported.write(tmp_path / "imported")
    (path,) = export(directory, "inspect", tmp_path / "export")
    log = read_by_inspect(path)
    assert sorted((sample["id"], sample["epoch"]) for sample in log["samples"]) == [
        (f"q{number}", epoch) for number in range(1, 6) for epoch in (1, 2)
    ]

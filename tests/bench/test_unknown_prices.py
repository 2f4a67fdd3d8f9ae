"""Reports on pools without a price."""

from __future__ import annotations

import asyncio
import csv
import re
from pathlib import Path

import pytest

from loopline.bench.checkers import Scorer
from loopline.bench.interchange.exports import export
from loopline.bench.output import OutputDirectory
from loopline.bench.report.figures import cost
from loopline.bench.report.terminal import print_report
from loopline.bench.report.writer import write_reports
from loopline.runtime.observe.result_folders import BenchmarkReader
from loopline.workers.engines.settings import Price
from tests.bench.benchmarks import created, items, manifest, run
from tests.bench.local_client import POOLS, LocalClient

A_ZERO = re.compile(r"\$0(?![.\d])")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> OutputDirectory:
    """A benchmark in which the big model has a price and the small one has none."""
    directory = created(tmp_path_factory.mktemp("unknown"), manifest(items(8, wrong=[5])))
    pools = {**POOLS, "slm": POOLS["slm"].model_copy(update={"price": Price()})}

    async def whole() -> None:
        with Scorer() as scorer:
            await run(directory, LocalClient(pools=pools), scorer)

    asyncio.run(whole())
    write_reports(directory)
    return directory


def test_the_cost_of_a_pool_without_a_price_is_unknown_and_never_zero(
    finished: OutputDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = write_reports(finished)
    print_report(facts)
    markdown = (finished.path / "report.md").read_text(encoding="utf-8")
    page = (finished.path / "report.html").read_text(encoding="utf-8")
    for text in (capsys.readouterr().out, markdown, page.partition("<script")[0]):
        assert "unknown" in text
        assert not A_ZERO.search(text), A_ZERO.search(text)
    (row,) = [line for line in markdown.splitlines() if line.startswith("| slm | slm |")]
    assert row.endswith("| unknown |")
    (row,) = [line for line in markdown.splitlines() if line.startswith("| router | slm |")]
    assert row.endswith("| unknown |")
    assert "+ unknown" in markdown, "the router calls both"


def test_arms_with_unknown_cost_are_plotted_by_their_tokens(finished: OutputDirectory) -> None:
    page = (finished.path / "report.html").read_text(encoding="utf-8")
    assert "tokens per question" in page
    assert "US dollars per 1,000 questions" not in page


def test_the_dashboard_reads_unknown_costs_from_the_report(finished: OutputDirectory) -> None:
    reader = BenchmarkReader(finished.path.parent)
    (result,) = reader.read([finished.path.name])
    costs = {arm.name: (arm.micro_dollars, arm.has_unpriced) for arm in result.arms}
    assert costs["slm"] == (None, True)
    dollars, has_unpriced = costs["router"]
    assert dollars
    assert has_unpriced
    assert costs["llm"][1] is False


def test_a_cost_is_shown_as_far_as_it_is_known() -> None:
    assert cost(None, has_unpriced=True) == "–"
    assert cost(0.0, has_unpriced=False) == "$0"
    assert cost(0.0, has_unpriced=True) == "unknown"
    assert cost(1.5, has_unpriced=True) == "$1.50 + unknown"


def test_a_table_of_runs_leaves_an_unknown_cost_empty(
    finished: OutputDirectory, tmp_path: Path
) -> None:
    (path,) = export(finished, "csv", tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        costs = {row["arm"]: row["micro_dollars"] for row in csv.DictReader(file)}
    assert costs["slm"] == ""
    assert int(costs["llm"]) > 0

"""`bench export`: a benchmark in the formats of other tools."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pandas
import pytest

from loopline.bench.comparison import compare_paths
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.interchange.exports import export
from loopline.bench.interchange.latex import escape
from loopline.bench.output import OutputDirectory
from tests.bench.command_line import bench
from tests.bench.finished_benchmark import finished_benchmark


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_benchmark(tmp_path_factory.mktemp("finished"))


def exported(finished: Path, form: str, folder: Path) -> list[Path]:
    return export(OutputDirectory(finished), form, folder)


@pytest.mark.parametrize(
    ("form", "ending", "scorers"),
    [("inspect", ".eval", ("numeric", None)), ("lm-eval", ".jsonl", ("numeric", None))],
)
def test_an_exported_arm_can_be_compared_with_its_benchmark(
    form: str, ending: str, scorers: tuple[str, None], finished: Path, tmp_path: Path
) -> None:
    paths = [path for path in exported(finished, form, tmp_path) if path.suffix == ending]
    arms = OutputDirectory(finished).manifest().arms
    assert len(paths) == len(arms)
    for path, arm in zip(paths, arms, strict=True):
        by_pair = {pair.arm_b: pair for pair in compare_paths(path, finished, scorers=scorers).arms}
        pair = by_pair[arm]
        assert (pair.questions, pair.accuracy.estimate, pair.unmatched_a) == (8, 0.0, ())


def test_pandas_and_csv_can_read_the_table_of_runs(finished: Path, tmp_path: Path) -> None:
    (path,) = exported(finished, "csv", tmp_path)
    frame = pandas.read_csv(path)
    of_llm: Any = frame[frame["arm"] == "llm"]
    assert int(of_llm["right_numeric"].sum()) == 7
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(frame) == 8 * len(OutputDirectory(finished).manifest().arms)
    assert rows[0]["item"] == "sums/test/0"


def test_each_row_of_a_latex_table_has_all_columns(finished: Path, tmp_path: Path) -> None:
    for path in exported(finished, "latex", tmp_path):
        text = path.read_text()
        (columns,) = re.findall(r"\\begin\{tabular\}\{(lr*)\}", text)
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert rows
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1
        order = [text.index(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")]
        assert order == sorted(order)
        assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_texts_cannot_inject_latex_commands() -> None:
    text = escape("50 % of $x_1 \\input{/etc/passwd} #1 & ~^")
    assert not re.search(r"(?<!\\)[%$_#&](?!<)", text)
    assert r"\input" not in text


def test_the_lm_eval_export_has_results_next_to_its_samples(finished: Path, tmp_path: Path) -> None:
    paths = exported(finished, "lm-eval", tmp_path)
    results = json.loads(paths[1].read_text())
    assert paths[1].name.startswith("results_")
    assert results["results"]["sums"]["numeric,none"] == 7 / 8
    assert results["model_name"] == "llm"


def test_the_command_lists_its_files(finished: Path, tmp_path: Path) -> None:
    done = bench(
        "export", str(finished), "--format", "csv", "--output", str(tmp_path / "out"), "--json"
    )
    assert json.loads(done.stdout) == {"files": [str(tmp_path / "out" / "runs.csv")]}
    unknown = bench("export", str(finished), "--format", "xml")
    assert unknown.returncode == 2
    assert "latex" in unknown.stderr


def test_a_benchmark_without_a_run_is_not_exported(finished: Path, tmp_path: Path) -> None:
    directory = OutputDirectory(tmp_path / "empty")
    directory.create(OutputDirectory(finished).manifest())
    with pytest.raises(UsageError, match="no finished run to export"):
        export(directory, "csv", tmp_path / "out")


def test_a_folder_that_can_t_be_created_is_an_error(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot be written .* another --output"):
        exported(finished, "csv", tmp_path / "file")

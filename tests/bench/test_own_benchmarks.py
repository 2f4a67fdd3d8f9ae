"""A user's own benchmarks: a file of questions with and without a scorer, an object in a module,
and an entry point of a package."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loopline.bench.arms import QUESTION_ARMS
from loopline.bench.comparison import compare_paths
from loopline.bench.datasets import Item, Request
from loopline.bench.errors import DataError, JudgingError, UsageError
from loopline.bench.output import OutputDirectory
from loopline.bench.progress import RunProgress
from loopline.bench.registry import benchmark_of, find
from loopline.bench.report.computation import facts_of
from loopline.bench.report.facts import Facts
from loopline.bench.report.writer import write_reports
from loopline.bench.rescoring import rescore_all
from loopline.bench.session import BenchRequest, conduct, manifest_of, resume
from loopline.bench.text_answers import same_text
from tests.bench.benchmarks import connected, items
from tests.bench.command_line import bench
from tests.bench.local_client import LocalClient

ROOT = Path(__file__).parents[2]


def questions(folder: Path, n: int = 4) -> Path:
    """A file of questions that the scripted engine answers correctly."""
    path = folder / "sums.jsonl"
    rows = [
        {"id": f"q{at}", "question": item.question, "answer": f" {item.gold}\n", "level": at}
        for at, item in enumerate(items(n))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scorer(folder: Path, body: str, name: str = "my_scorer.py") -> Path:
    path = folder / name
    path.write_text(f"def score(item, answer):\n    {body}\n")
    return path


def begun(path: Path, data: Path, scorer: Path | None = None, arms: str = "llm") -> OutputDirectory:
    """The directory that `bench run` creates first."""
    benchmark = find(str(data), scorer)
    request = Request(split=benchmark.default_split)
    bench_request = BenchRequest(benchmark, benchmark.arms.parse(arms), request)
    manifest = manifest_of(bench_request, benchmark.load(request))
    benchmark.require(manifest)
    directory = OutputDirectory(path)
    directory.create(manifest)
    return directory


def gone_on(directory: OutputDirectory, client: LocalClient) -> Facts:
    progress = RunProgress(directory.manifest().arms)
    ended = asyncio.run(conduct(directory, lambda: connected(client), progress=progress))
    assert ended.facts is not None
    return ended.facts


def right(facts: Facts) -> dict[str, int]:
    return {arm.name: arm.right() for arm in facts.arms}


# ---- a file of questions ----


def test_without_a_scorer_answers_are_compared_as_texts_and_the_report_says_so(
    tmp_path: Path,
) -> None:
    directory = begun(tmp_path / "out", questions(tmp_path), arms="llm,solo,delegate")
    facts = gone_on(directory, LocalClient())
    assert right(facts)["llm"] == right(facts)["solo"] == 4
    assert list(facts.checkers) == ["exact"]
    text = (directory.path / "report.html").read_text()
    assert "sums.jsonl: llm against solo against delegate" in text
    assert "the same text as the gold answer, ignoring case and white space" in text


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("New York", " new \n york ", True),
        ("Straße", "STRASSE", True),
        ("New York", "New York City", False),
        ("18", "18.0", False),
    ],
)
def test_a_comparison_of_texts_ignores_only_whitespace_and_case(
    gold: str, answer: str, same: bool
) -> None:
    assert same_text(Item("x", "?", gold), answer) is same


def test_a_scorer_sees_the_item_with_all_its_fields(tmp_path: Path) -> None:
    decides = scorer(
        tmp_path, "return item.about['level'] < 2 and item.gold.strip() == answer.strip()"
    )
    facts = gone_on(begun(tmp_path / "out", questions(tmp_path), decides), LocalClient())
    assert right(facts) == {"llm": 2}
    assert facts.results["arms"]["llm"]["classes"] == {"right": 2, "wrong_answer": 2}
    assert "my_scorer.py (sha256 " in facts.checkers["score"]


def test_a_partial_score_is_measured_but_only_1_counts_as_right(tmp_path: Path) -> None:
    shares = scorer(tmp_path, "return (0.0, 0.5, 0.5, 1)[item.about['level']]")
    facts = gone_on(begun(tmp_path / "out", questions(tmp_path), shares), LocalClient())
    assert right(facts) == {"llm": 1}
    assert facts.results["arms"]["llm"]["measures"]["score"]["estimate"] == 0.5


def test_a_failing_scorer_is_reported_with_file_line_and_item_and_judges_no_answer(
    tmp_path: Path,
) -> None:
    """Once the scorer is corrected, the same runs are collected: nothing is paid for again."""
    broken = scorer(tmp_path, "return item.about['level'] / (item.about['level'] - 2) < 9")
    directory = begun(tmp_path / "out", questions(tmp_path), broken)
    client = LocalClient()
    with pytest.raises(
        JudgingError, match=r"my_scorer\.py:2: score failed on item 'q2': ZeroDivisionError"
    ):
        gone_on(directory, client)
    assert all(item != "q2" for _, item in directory.stored().results)
    assert facts_of(directory).results["not_done"]["llm"]
    fixed = scorer(tmp_path, "return True", "fixed.py")
    rescore_all(directory.path, fixed)
    assert right(gone_on(directory, client)) == {"llm": 4}
    assert len(client.runs) == 4


@pytest.mark.parametrize(
    ("body", "returned"),
    [("return None", "None"), ("return 'yes'", "'yes'"), ("return 2", "2"),
     ("return float('nan')", "nan")],
)  # fmt: skip
def test_a_value_that_is_not_a_verdict_is_the_scorer_s_failure(
    tmp_path: Path, body: str, returned: str
) -> None:
    directory = begun(tmp_path / "out", questions(tmp_path), scorer(tmp_path, body))
    with pytest.raises(JudgingError, match=rf"my_scorer\.py:1: .*item 'q\d'.*returned {returned}"):
        gone_on(directory, LocalClient())


def test_a_changed_scorer_or_data_file_is_refused_by_name(tmp_path: Path) -> None:
    data, decides = questions(tmp_path), scorer(tmp_path, "return True")
    directory = begun(tmp_path / "out", data, decides)
    gone_on(directory, LocalClient())
    scorer(tmp_path, "return False")
    for refused in (resume, rescore_all):
        with pytest.raises(UsageError, match=r"my_scorer\.py: the file has changed.*--scorer"):
            refused(directory.path)
    scorer(tmp_path, "return True")
    changes, _ = rescore_all(directory.path)
    assert changes == []
    questions(tmp_path, 5)
    for refused in (resume, rescore_all):
        with pytest.raises(UsageError, match=r"sums\.jsonl: the file has changed"):
            refused(directory.path)


def test_rescore_takes_another_scorer_and_keeps_it(tmp_path: Path) -> None:
    data = questions(tmp_path)
    directory = begun(tmp_path / "out", data)
    gone_on(directory, LocalClient())
    other_scorer = scorer(tmp_path, "return item.id == 'q1'", "other.py")
    changes, facts = rescore_all(directory.path, other_scorer)
    assert (len(changes), right(facts)) == (4, {"llm": 1})
    assert rescore_all(directory.path)[0] == []
    with pytest.raises(DataError, match=r"absent\.py: cannot be read"):
        rescore_all(directory.path, tmp_path / "absent.py")


def test_a_directory_can_be_reported_and_compared_without_its_source_files(tmp_path: Path) -> None:
    data, decides = questions(tmp_path), scorer(tmp_path, "return True")
    paths = (tmp_path / "a", tmp_path / "b")
    for path in paths:
        gone_on(begun(path, data, decides), LocalClient())
    data.unlink()
    decides.unlink()
    assert right(write_reports(OutputDirectory(paths[0]))) == {"llm": 4}
    [compared] = compare_paths(*paths).arms
    assert (compared.questions, compared.accuracy_a) == (4, 1.0)
    with pytest.raises(UsageError, match=r"my_scorer\.py: cannot be read"):
        rescore_all(paths[0])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def score(item, answer)\n", "my_scorer.py:1: expected ':'"),
        ("x = 1\n\n1 / 0\n", "my_scorer.py:3: the scorer cannot be loaded: ZeroDivisionError"),
        ("x = 1\n", "my_scorer.py has no function score(item, answer)"),
        ("def score(answer):\n    return True\n", "my_scorer.py:1: score must take (item, answer)"),
        ("async def score(item, answer):\n    return True\n", "must be a plain function"),
    ],
)
def test_an_unusable_scorer_is_refused_before_a_deployment_is_needed(
    tmp_path: Path, source: str, says: str
) -> None:
    path = tmp_path / "my_scorer.py"
    path.write_text(source)
    process = bench("run", str(questions(tmp_path)), "--scorer", str(path))
    assert process.returncode == 2, process.stderr
    assert says in " ".join(process.stderr.split())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"question": "?", "answer": "a"}', "`id` must be"),
        ('{"id": "q0", "question": "?", "answer": "a"}', "the id 'q0' is already in line 1"),
        ('{"id": "x", "question": " ", "answer": "a"}', "`question` must be"),
        ('{"id": "x", "question": "?"}', "`answer` must be"),
        ('{"id": "x", "question": "?", "answer": ["a"]}', "item.about"),
        ("[1]", "expected an object"),
        ("{", "not JSON"),
    ],
)
def test_an_unusable_line_is_reported(tmp_path: Path, line: str, says: str) -> None:
    path = questions(tmp_path, 1)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=rf"sums\.jsonl:2: .*{says}"):
        find(str(path)).load(Request())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("absent.jsonl",), "absent.jsonl: cannot be read"),
        (("gsm8k", "--scorer", "x.py"), "--scorer is for a file of questions"),
        (("gsm8k", "--option", "game=sudoku"), "has no options of its own"),
        (("puzzles", "--option", "game=chess"), "--game"),
        (("no_such_module:X",), "there is no module 'no_such_module'"),
        (("tests.bench.benchmarks:ARMS",), "is not a benchmark"),
        (("gsm9k",), "there is no benchmark 'gsm9k'; there are: aime24"),
    ],
)
def test_an_unknown_benchmark_is_refused_with_the_known_ones(
    arguments: tuple[str, ...], says: str
) -> None:
    process = bench("run", *arguments)
    assert process.returncode in (1, 2), process.stderr
    assert says in " ".join(process.stderr.split())


def test_a_workflow_that_needs_only_a_question_is_an_arm() -> None:
    assert [arm.workflow for arm in QUESTION_ARMS.parse("solo,delegate,router")] == [
        "solo", "delegate", "delegate",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no arm 'completion'"):
        QUESTION_ARMS.parse("completion")


# ---- an object of a package ----

PACKAGE = """
from loopline.bench.datasets import Dataset, Item
from loopline.bench.text_answers import text_benchmark
from tests.bench.benchmarks import items


def load(request):
    asked = tuple(items(request.samples or 3))
    return Dataset("adding", request.split, asked, len(asked), "made up")


def score(item, answer):
    return answer.strip() == item.gold


ADDING = text_benchmark("adding", "Adding up", load, score, default_split="any")
misnamed = ADDING
"""

PLAY = """
import json, sys
from pathlib import Path
from loopline.bench.errors import UsageError
from loopline.bench.output import OutputDirectory
from loopline.bench.registry import benchmark_of, find, names
from loopline.bench.rescoring import rescore_all
from loopline.bench.session import BenchRequest, manifest_of
from loopline.bench.datasets import Request
from tests.bench.local_client import LocalClient
from tests.bench.test_own_benchmarks import gone_on, right

def refused(name):
    try:
        find(name)
    except UsageError as error:
        return str(error)

seen = {"names": names(), "refused": refused("misnamed")}
for target in ("adding", "adding_up:ADDING"):
    benchmark = find(target)
    request = Request(split=benchmark.default_split, samples=2)
    made = manifest_of(
        BenchRequest(benchmark, benchmark.arms.parse("llm"), request), benchmark.load(request)
    )
    directory = OutputDirectory(Path(sys.argv[1]) / target.replace(":", "-"))
    directory.create(made)
    facts = gone_on(directory, LocalClient())
    seen[target] = {
        "title": benchmark_of(directory.manifest()).title,
        "right": right(facts),
        "changes": rescore_all(directory.path)[0],
    }
print(json.dumps(seen))
"""


def test_a_package_provides_a_benchmark_by_entry_point_or_object(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "adding-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "adding_up.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: adding\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[loopline.benchmarks]\nadding = adding_up:ADDING\nmisnamed = adding_up:misnamed\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert {"adding", "gsm8k", "puzzles"} <= set(result["names"])
    assert "provides a benchmark called 'adding'" in result["refused"]
    for target in ("adding", "adding_up:ADDING"):
        assert result[target] == {"title": "Adding up", "right": {"llm": 2}, "changes": []}


def test_a_directory_whose_package_is_missing_is_refused(tmp_path: Path) -> None:
    directory = begun(tmp_path / "out", questions(tmp_path))
    manifest = directory.manifest().model_copy(update={"origin": None})
    with pytest.raises(UsageError, match="there is no benchmark 'sums'"):
        benchmark_of(manifest)

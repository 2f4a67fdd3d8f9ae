"""`bench report`, `rescore` and `compare` on directories that a run leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from loopline.bench.arms import QUESTION_ARMS
from loopline.bench.comparison import compare_paths
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.output import OutputDirectory
from loopline.bench.progress import RunProgress
from loopline.bench.rescoring import rescore_all
from loopline.bench.runner import Ending, Job
from loopline.bench.session import conduct, summary_line
from tests.bench.benchmarks import connected, created, items, manifest
from tests.bench.command_line import bench
from tests.bench.finished_benchmark import finished_benchmark
from tests.bench.local_client import LocalClient


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_benchmark(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_report_writes_three_files_from_the_stored_results(copy: Path) -> None:
    """And prints the table."""
    process = bench("report", str(copy))
    assert process.returncode == 0, process.stderr
    for name in ("report.html", "report.md", "report.json"):
        assert (copy / name).stat().st_size > 500
    assert "7/8" in process.stdout


def test_the_json_line_shows_unfinished_questions(copy: Path) -> None:
    """Here the last result was lost."""
    path = copy / "items.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lost = next(line for line in reversed(lines) if '"type":"result"' in line)
    path.write_text("".join(line for line in lines if line != lost))
    summary = json.loads(bench("report", str(copy), "--json").stdout)
    missing = json.loads(lost)
    assert summary["complete"] is False
    assert summary["not_done"] == {missing["arm"]: [missing["item"]]}
    assert summary["arms"][missing["arm"]]["n"] == 7


@pytest.mark.parametrize("command", ["report", "resume", "rescore"])
def test_a_directory_without_a_benchmark_is_a_usage_error(tmp_path: Path, command: str) -> None:
    """One line that states the expected value."""
    for path in (tmp_path, tmp_path / "absent"):
        process = bench(command, str(path))
        assert process.returncode == 2
        assert process.stderr.startswith("error: ")
        assert "Traceback" not in process.stderr


def test_the_command_reports_a_damaged_line(copy: Path) -> None:
    """Exit code 1; nothing is guessed."""
    lines = (copy / "items.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "items.jsonl").write_bytes(b"".join([lines[0], b"{oops\n", *lines[1:]]))
    process = bench("report", str(copy))
    assert process.returncode == 1
    assert f"{copy / 'items.jsonl'}:2: the line is damaged" in process.stderr


def test_a_damaged_manifest_is_reported_with_the_field(copy: Path) -> None:
    """For example a typo made by hand."""
    manifest_path = copy / "manifest.json"
    broken = json.loads(manifest_path.read_text()) | {"seed": "many"}
    manifest_path.write_text(json.dumps(broken))
    with pytest.raises(OutputError, match=r"manifest\.json: seed: "):
        OutputDirectory(copy).manifest()


def test_rescore_finds_nothing_to_change_in_a_fresh_directory(copy: Path) -> None:
    """Scoring is deterministic."""
    before = (copy / "items.jsonl").read_bytes()
    changes, _ = rescore_all(copy)
    assert changes == []
    assert (copy / "items.jsonl").read_bytes() == before


def test_rescore_replaces_outdated_verdicts(copy: Path) -> None:
    """As if a checker had been fixed since; the old line stays in the file."""
    path = copy / "items.jsonl"
    before = path.read_text().replace('"flexible":true', '"flexible":false')
    path.write_text(before)
    changes, facts = rescore_all(copy)
    assert {str(change["checker"]) for change in changes} == {"flexible"}
    assert path.read_text().startswith(before)
    accuracy = facts.results["arms"]["llm"]["accuracy"]
    assert accuracy["flexible"]["right"] == accuracy["numeric"]["right"]
    assert rescore_all(copy)[0] == []


def test_compare_pairs_two_benchmarks_question_by_question(finished: Path, copy: Path) -> None:
    """Here one answer of the second directory was lost."""
    path = copy / "items.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    spoiled = [
        line.replace('"numeric":true', '"numeric":false')
        if '"item":"sums/test/0"' in line and '"arm":"llm"' in line
        else line
        for line in lines
    ]
    path.write_text("".join(spoiled))
    by_arm = {comparison.arm_a: comparison for comparison in compare_paths(finished, copy).arms}
    assert by_arm["llm"].only_a == ("sums/test/0",)
    assert by_arm["llm"].p == 1.0
    assert by_arm["router"].only_a == by_arm["router"].only_b == ()
    process = bench("compare", str(finished), str(copy), "--json")
    assert json.loads(process.stdout)[0]["n"] == 8
    assert bench("compare", str(finished), str(copy), "--arms", "llm:slm").returncode == 0


def test_every_figure_of_three_arms_fits_eighty_columns(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is truncated, and no line is broken."""
    monkeypatch.setenv("COLUMNS", "80")
    reported = bench("report", str(copy)).stdout
    compared = bench("compare", str(copy), str(copy)).stdout
    assert "…" not in reported + compared
    for arm in ("llm   ", "router", "slm   "):
        assert f"{arm}    7/8    87.5 %  52.9 – 97.8  " in reported
    assert "A right            87.5 %      87.5 %      87.5 %\n" in compared
    assert "0.0 to 0.0  0.0 to 0.0  0.0 to 0.0\n" in compared


def test_progress_mentions_money_only_if_something_has_a_price(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    """It also stops mentioning the remaining time once it is told to stop."""
    results = list(OutputDirectory(finished).stored().results.values())
    for spent in (0, 20_000):
        progress = RunProgress(("llm", "router", "slm"))
        progress.started(len(results), [], 0)
        progress.finished(results[0], spent)
        progress.stopping("Stopping.")
        progress.stop()
        output = capsys.readouterr().err
        assert ("$0.0200" in output) == ("/h" in output) == bool(spent)
        assert " left" not in output


def test_a_resubmitted_run_is_in_flight_once(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    """For example after an outage of Redis."""
    directory = OutputDirectory(finished)
    results, manifest = list(directory.stored().results.values()), directory.manifest()
    progress = RunProgress(manifest.arms)
    progress.started(len(results), [], 0)
    jobs = [
        Job(arm, item) for arm in QUESTION_ARMS.named(manifest.arms) for item in manifest.items[:2]
    ]
    for job in (*jobs, *jobs):
        progress.admitted(job)
    progress.finished(results[0], 0)
    progress.stop()
    assert f"{len(jobs) - 1} in flight" in capsys.readouterr().err


def test_compare_refuses_directories_that_cannot_be_paired(finished: Path, tmp_path: Path) -> None:
    """Other questions, other meanings of an id, unknown arms."""
    other_path = tmp_path / "other"
    created(other_path, manifest(items(8, wrong=[1])))
    with pytest.raises(UsageError, match="not the same question"):
        compare_paths(finished, other_path)
    with pytest.raises(UsageError, match="has no arm 'umi'"):
        compare_paths(finished, finished, [("umi", "llm")])
    empty = tmp_path / "empty"
    created(empty, manifest(items(8, wrong=[3])))
    with pytest.raises(UsageError, match="no question in common"):
        compare_paths(finished, empty)


async def test_conduct_runs_reports_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second time nothing is left to do; without a terminal it prints plain lines."""
    directory = created(tmp_path, manifest(items(3)))
    client = LocalClient()
    ended = await conduct(directory, lambda: connected(client))
    assert ended.ending is Ending.COMPLETE
    assert ended.exit_code == 0
    line = summary_line(ended)
    assert line["complete"]
    assert line["arms"]["llm"]["right"] == 3
    again = await conduct(directory, lambda: connected(client))
    assert again.exit_code == 0
    assert sum(client.submissions.values()) == 9
    written = capsys.readouterr().err
    assert "9 of 9 runs, 0 in flight" in written
    assert "9 of 9 runs are stored already" in written
    assert "\x1b[" not in written


async def test_sigint_stops_admissions_and_says_how_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first Ctrl-C; the second needs a real process."""
    directory = created(tmp_path, manifest(items(6), arms=("llm",)))
    client = LocalClient(gate=asyncio.Event())

    class Interrupting(RunProgress):
        count = 0

        def admitted(self, job: object) -> None:  # the runner's fourth admission
            self.count += 1
            if self.count == 4:
                os.kill(os.getpid(), signal.SIGINT)

    ended = await conduct(
        directory, lambda: connected(client), progress=Interrupting(("llm",)), grace=0.05
    )
    assert ended.exit_code == 130
    assert len(client.runs) == 4
    written = capsys.readouterr().err
    assert "no more runs are admitted" in written
    assert f"bench resume {tmp_path}" in written


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ("", "names no arm"),
        ("llm,gpt", r"no arm 'gpt'.*llm, router, slm, or a workflow \(.*delegate"),
        ("llm,llm", "twice"),
    ],
)
def test_impossible_arms_are_refused(arms: str, message: str) -> None:
    """With the list of possible arms."""
    with pytest.raises(UsageError, match=message):
        QUESTION_ARMS.parse(arms)


@pytest.mark.parametrize(
    "arguments",
    [
        ("gsm8k", "--arms", "gpt"),
        ("wordproblems", "--calculator", "maybe"),
        ("wordproblems", "--compat", "other"),
        ("wordproblems", "--samples", "0"),
        ("wordproblems", "--concurrency", "0"),
        ("wordproblems", "--budget-usd", "-1"),
        ("wordproblems", "--run-seconds", "0"),
        ("wordproblems", "--split", "dev"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: tuple[str, ...]) -> None:
    """Exit code 2 and one line, before a deployment is needed."""
    process = bench(*arguments)
    assert process.returncode == 2, process.stderr
    assert "Traceback" not in process.stderr


def test_without_a_deployment_the_error_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error mentions `runtime up`."""
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path))
    process = bench("wordproblems", "--samples", "2")
    assert process.returncode == 3
    assert "runtime up" in process.stderr

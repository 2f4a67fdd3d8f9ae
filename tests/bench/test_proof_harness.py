"""Every proof states its duration, and ends with its measurements, complete or partial."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from loopline.bench.errors import BenchError, UsageError
from loopline.bench.proofs import baselines, harness
from loopline.bench.proofs.commands import PROOFS
from loopline.bench.proofs.harness import FullOptions, Options, Progress, Proof, conduct, with_full
from loopline.bench.proofs.outcome import Measurement, Outcome, Violation, measured, number
from loopline.bench.statistics import Spread
from tests.bench.command_line import bench


class ExampleOptions(Options):
    repeats: int = 3


Run = Callable[[ExampleOptions, Progress], Outcome]


def proof(run: Run) -> Proof[ExampleOptions]:
    return Proof("example", "an example", ExampleOptions, lambda options: 3.2, run)


def outcome(value: float = 2.0, *violations: Violation) -> Outcome:
    result = Outcome(
        about="One thing.",
        measurements=[measured("speed", Spread(value, 1.0, 3.0), "/s", bar=1.5, better="higher")],
    )
    result.violate(violations)
    return result


def exit_code_of(run: Run, **how: Any) -> int:
    try:
        conduct(proof(run), ExampleOptions(**how))
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def test_a_proof_starts_with_its_duration_and_ends_with_one_json_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of(lambda options, progress: outcome(), as_json=True) == 0
    output = capsys.readouterr()
    assert output.err == "an example: takes about 3 minutes on 2 cores\n"
    line = json.loads(output.out.splitlines()[-1])
    assert line["seconds"] >= 0
    assert line["options"] == {"repeats": 3}
    assert line["measurements"] == {
        "speed": {
            "value": 2.0, "low": 1.0, "high": 3.0, "unit": "/s", "bar": 1.5, "better": "higher",
        }
    }  # fmt: skip
    assert "2 (1–3)" in output.out
    assert "met" in output.out


def test_a_missed_bar_sets_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(lambda options, progress: outcome(1.4)) == 1
    assert "missed" in capsys.readouterr().out


def test_a_violation_sets_the_exit_code_and_is_shown_with_its_history(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(options: ExampleOptions, progress: Progress) -> Outcome:
        result = outcome(2.0, Violation("once", "came twice", "run-1"))
        result.context = lambda violation: [f"history of {violation.subject}"]
        return result

    assert exit_code_of(run) == 1
    stdout = capsys.readouterr().out
    assert "[once] run-1: came twice\n    history of run-1" in stdout
    assert "1 violation by rule: once: 1" in stdout


@pytest.mark.parametrize(
    ("error", "code", "ending"),
    [
        (KeyboardInterrupt(), 130, "the measurements so far are above"),
        (BenchError("no"), 1, ""),
    ],
)
def test_measurements_from_before_an_early_end_are_shown(
    error: BaseException, code: int, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: ExampleOptions, progress: Progress) -> Outcome:
        progress.outcome = outcome
        raise error

    with pytest.raises((typer.Exit, BenchError)) as ended:
        conduct(proof(run), ExampleOptions(as_json=True))
    output = capsys.readouterr()
    assert getattr(ended.value, "exit_code", None) == code
    line = json.loads(output.out.splitlines()[-1])
    assert (line["complete"], line["passed"]) == (False, False)
    assert line["measurements"]["speed"]["value"] == 2.0
    assert ending in output.err


def test_an_interruption_before_any_measurement_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(options: ExampleOptions, progress: Progress) -> Outcome:
        raise KeyboardInterrupt

    assert exit_code_of(run, as_json=True) == 130
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[-1] == "stopped"


def test_the_page_contains_every_figure_and_no_scripts(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "page.html"
    result = outcome(2.0)
    result.about = "<script>alert(1)</script>"
    exit_code_of(lambda options, progress: result, output=path)
    text = path.read_text()
    assert "speed" in text
    assert "<script>alert" not in text


def test_subjects_are_rows_and_quantities_are_columns() -> None:
    tables = harness.tables(
        [
            measured("rate", 10.0, "/s", subject="ours", group="four in flight"),
            measured("delay", 1.0, "ms", subject="ours", group="four in flight"),
            measured("rate", 5.0, "/s", subject="theirs", group="four in flight"),
            measured("ratio", 2.0, "×"),
        ]
    )
    assert (tables[0].title, tables[0].head) == ("four in flight", ["", "rate /s", "delay ms"])
    assert tables[0].rows == [["ours", "10", "1"], ["theirs", "5", ""]]
    assert tables[1].rows == [["ratio", "2", "×", "", ""]]


def test_an_unmeasured_value_is_a_dash_and_null() -> None:
    missing = measured("delay", float("nan"), "ms")
    assert missing.text() == "–"
    example, result = proof(lambda options, progress: outcome()), Outcome(measurements=[missing])
    line = harness.line_of(example, ExampleOptions(), result, complete=True)
    assert line["measurements"]["delay"]["value"] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(12_345.6, "12,346"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123"),
     (0.00123, "1.2e-03"), (0.0, "0"), (-3.0, "-3")],
)  # fmt: skip
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_bar_is_met_at_its_value_and_on_the_better_side() -> None:
    def met(value: float, better: Any) -> bool | None:
        return Measurement(name="m", value=value, bar=2.0, better=better).met

    assert [met(value, "higher") for value in (1.9, 2.0, 2.1)] == [False, True, True]
    assert [met(value, "lower") for value in (1.9, 2.0, 2.1)] == [True, True, False]
    assert Measurement(name="m", value=1.0).met is None


def test_out_of_range_numbers_are_refused_with_the_range() -> None:
    assert harness.numbers("places", "4, 1", low=1, high=9) == [4, 1]
    for text in ("", "x", "0", "10"):
        with pytest.raises(UsageError, match=r"--places .*: numbers from 1 to 9"):
            harness.numbers("places", text, low=1, high=9)


def test_a_recorded_line_is_read_back_with_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "folder", lambda: tmp_path)
    exit_code_of(lambda options, progress: outcome(), record=True)
    (line,) = baselines.read("example")
    assert line.measurements["speed"].value == 2.0
    assert line.machine == baselines.machine()
    assert line.passed
    assert baselines.recorded_proofs() == ["example"]


def test_an_interrupted_proof_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(options: ExampleOptions, progress: Progress) -> Outcome:
        progress.outcome = outcome
        raise KeyboardInterrupt

    monkeypatch.setattr(baselines, "folder", lambda: tmp_path)
    assert exit_code_of(run, record=True) == 130
    assert baselines.read("example") == []


@pytest.mark.parametrize("name", PROOFS)
def test_the_help_of_a_proof_states_the_duration_with_its_defaults(name: str) -> None:
    """By default no proof takes more than ten minutes on two cores."""
    proof = import_module(f"loopline.bench.proofs.{name.replace('-', '_')}.proof").PROOF
    assert proof.name == name
    minutes = proof.minutes(proof.options())
    assert minutes <= 10
    assert PROOFS[name].minutes == max(1, round(minutes))
    assert bool(PROOFS[name].full) == bool(proof.full)
    # The full form sets existing options.
    proof.options.model_validate(proof.full)


def test_the_full_form_keeps_the_user_s_options() -> None:
    class LongOptions(FullOptions):
        size: int = 1
        repeats: int = 2

    example = Proof(
        "example", "an example", LongOptions, lambda options: 1.0,
        lambda options, progress: outcome(), full={"size": 10, "repeats": 20},
    )  # fmt: skip
    options = with_full(example, LongOptions(full=True, repeats=2))
    assert (options.size, options.repeats) == (10, 2)
    assert with_full(example, LongOptions(repeats=3)).size == 1


def test_a_dry_run_shows_the_full_form_s_duration_and_measures_nothing() -> None:
    done = bench("gpu", "--full", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "full = true" in done.stdout
    assert "would take about " in done.stdout


def test_the_printed_configuration_of_the_full_form_is_the_full_form(tmp_path: Path) -> None:
    printed = bench("gpu", "--full", "--steps", "2", "--dry-run").stdout
    assert "layers = 28\n" in printed
    assert "steps = 2\n" in printed
    file = tmp_path / "gpu.toml"
    file.write_text(printed)
    assert bench("gpu", "--config", str(file), "--dry-run").stdout == printed


def test_an_invalid_option_is_reported_with_its_text() -> None:
    done = bench("bus", "--latency-seconds", "0")
    assert done.returncode == 2
    assert done.stderr == (
        "error: --latency-seconds 0: Input should be greater than or equal to 1\n"
    )

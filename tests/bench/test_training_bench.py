"""`bench training` on the smallest model: what is counted, and that trl is given the same."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from loopline.bench.errors import UsageError
from loopline.bench.proofs.training import command
from loopline.bench.proofs.training.command import Plan, measure
from loopline.bench.proofs.training.figures import OURS, Report
from loopline.bench.proofs.training.workload import Measured, Prepared

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-c", "from loopline.bench.cli import main; main()", "training")
SMALL = (
    "--size",
    "micro-0.2m",
    "--samples",
    "24",
    "--batch",
    "8",
    "--steps",
    "2",
    "--repeats",
    "1",
)

PLAN = Plan(size="micro-0.2m", samples=8, batch=8, steps=1, repeats=1, threads=1, seed=1, only=OURS)


def bench_training(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=110)


def measured(*arguments: str) -> dict[str, Any]:
    done = bench_training(*SMALL, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run(tokens: int, seconds: float) -> Measured:
    return Measured(
        steps=1, seconds=seconds, tokens=tokens, padding=tokens // 4, forwards=1, peak_memory_mb=1.0
    )


def test_a_ratio_is_of_real_tokens_repeat_by_repeat_against_the_fastest_form() -> None:
    report = Report(
        "micro-0.2m", Prepared(1, "fp32", 1, 1, 1, 1), "1 of 2 cores", packed=("bfd", "wrapped"),
        figures={
            OURS: [run(400, 1.0), run(300, 1.0), run(200, 1.0)],
            "padded": [run(100, 1.0)] * 3,
            "bfd": [run(50, 1.0)] * 3,
            "wrapped": [run(400, 2.0), run(300, 2.0), run(400, 2.0)],
        },
    )  # fmt: skip
    found = report.as_json()
    assert (found["sft_vs_trl"], found["sft_vs_trl_spread"]) == (3.0, [3.0, 2.0, 4.0])
    assert (found["sft_vs_trl_packed"], found["sft_vs_trl_packed_form"]) == (2.0, "wrapped")
    assert found["sft_vs_trl_packed_spread"] == [2.0, 1.0, 2.0]
    assert run(100, 1.0).padding_share == 0.2


def test_our_training_is_measured_without_its_padding() -> None:
    found = measured("--only", OURS, "--steps", "8")
    figures = found["figures"][OURS]
    (once,) = figures["repeats"]
    assert once["steps"] == 8
    # Most of the rows, eight a step and alike in length, each with all its tokens and no more.
    assert once["tokens"] == pytest.approx(8 * 8 * found["rows"]["mean"], rel=0.3)
    assert 0 <= once["padding"] < once["tokens"]
    assert once["forwards"] >= 8
    assert figures["tokens_per_second"][0] > 0
    assert figures["peak_memory_mb"][0] > 100
    assert "sft_vs_trl" not in found


def test_trl_is_given_the_same_rows_in_steps_of_as_many_tokens() -> None:
    pytest.importorskip("trl", reason="needs make test, which installs it")
    found = measured()
    assert found["sft_vs_trl"] > 0
    assert found["sft_vs_trl_packed"] > 0
    for name, figures in found["figures"].items():
        (once,) = figures["repeats"]
        assert once["steps"] == 2, name
        assert once["tokens"] == pytest.approx(16 * found["rows"]["mean"], rel=0.5), name


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"only": "axolotl"}, "choose one of both, ours"),
        ({"size": "huge"}, "--size: there is no size 'huge'"),
    ],
)
def test_what_cannot_be_measured_is_one_error(changed: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        measure(replace(PLAN, **changed), as_json=False)


def test_without_trl_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_TRL", ("no_such_package",))
    with pytest.raises(UsageError, match=r"in the checkout: pip install .*'\.\[peers\]'"):
        measure(replace(PLAN, only="both"), as_json=False)

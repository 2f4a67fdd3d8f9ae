"""`bench training` on the smallest model: what it counts, and that trl gets the same data."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

import pytest

from loopline.bench.errors import UsageError
from loopline.bench.proofs.harness import Progress, conduct
from loopline.bench.proofs.isolated_process import isolated_worker
from loopline.bench.proofs.training import proof, trl_peer
from loopline.bench.proofs.training.proof import (
    OURS,
    PROOF,
    TRAINERS,
    Runs,
    TrainingOptions,
    check,
)
from loopline.bench.proofs.training.workload import Measured
from loopline.runtime.config.options import validated
from loopline.runtime.errors import InputError

pytestmark = pytest.mark.slow

OPTIONS = TrainingOptions(
    size="micro-0.2m", samples=8, batch=8, steps=1, repeats=1, threads=1, seed=1, only=OURS,
)  # fmt: skip


@pytest.fixture(scope="module")
def alone() -> Iterator[Executor]:
    """One process for all measurements: each would import torch again, and nothing here depends on
    the memory or the time of one."""
    with isolated_worker(None) as executor:
        yield executor


@pytest.fixture
def quick(alone: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def shared() -> Generator[Executor]:
        yield alone

    monkeypatch.setattr(proof, "isolated_worker", shared)


def run(tokens: int, seconds: float) -> Measured:
    return Measured(
        steps=1, seconds=seconds, tokens=tokens, padding=tokens // 4, forwards=1, peak_memory_mb=1.0
    )


def test_a_ratio_compares_real_tokens_per_repeat_with_the_fastest_form() -> None:
    runs = Runs(
        packed=("bfd", "wrapped"),
        repeats={
            OURS: [run(400, 1.0), run(300, 1.0), run(200, 1.0)],
            "padded": [run(100, 1.0)] * 3,
            "bfd": [run(50, 1.0)] * 3,
            "wrapped": [run(400, 2.0), run(300, 2.0), run(400, 2.0)],
        },
    )
    summary = {
        measurement.name: measurement
        for measurement in runs.measurements()
        if not measurement.subject
    }
    padded, packed = summary["sft_vs_trl"], summary["sft_vs_trl_packed"]
    assert (padded.value, padded.low, padded.high) == (3.0, 2.0, 4.0)
    assert (packed.value, packed.low, packed.high) == (2.0, 1.0, 2.0)
    assert runs.fastest() == {"sft_vs_trl_packed": "wrapped", "sft_vs_trl": "padded"}
    assert run(100, 1.0).padding_share == 0.2


def test_a_ratio_below_the_bar_is_missed() -> None:
    runs = Runs(
        packed=("bfd",),
        bar=1.5,
        repeats={OURS: [run(300, 1.0)], "bfd": [run(200, 1.0)], "padded": [run(201, 1.0)]},
    )
    met = {figure.name: figure.met for figure in runs.measurements() if not figure.subject}
    assert met == {"sft_vs_trl_packed": True, "sft_vs_trl": False}


def of(report: dict[str, Any], trainer: str, quantity: str) -> float:
    return report["measurements"][f"supervised training / {trainer} / {quantity}"]["value"]


@pytest.mark.usefixtures("quick")
def test_our_training_is_measured_without_padding(capsys: pytest.CaptureFixture[str]) -> None:
    conduct(PROOF, OPTIONS.model_copy(update={"samples": 24, "steps": 8, "as_json": True}))
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    # Most of the rows, eight per step and of similar length, each with exactly its tokens.
    mean = report["facts"]["mean_tokens"]
    assert of(report, OURS, "tokens per step") == pytest.approx(8 * mean, rel=0.3)
    assert 0 <= of(report, OURS, "padding") < 50
    assert of(report, OURS, "tokens/s") > 0
    assert of(report, OURS, "peak memory") > 100
    assert "sft_vs_trl" not in report["measurements"]


@pytest.mark.usefixtures("quick")
def test_trl_gets_steps_with_about_as_many_tokens_as_ours() -> None:
    pytest.importorskip("trl", reason="needs make test, which installs it")
    options = OPTIONS.model_copy(update={"samples": 24, "steps": 2, "only": "both"})
    outcome = proof.run(options, Progress())
    figures = {measurement.key: measurement.value for measurement in outcome.measurements}
    assert figures["sft_vs_trl"] > 0
    assert figures["sft_vs_trl_packed"] > 0
    mean = outcome.facts["mean_tokens"]
    assert isinstance(mean, float)
    for name in (OURS, *trl_peer.FORMS):
        steps = figures[f"{TRAINERS} / {name} / tokens per step"]
        assert steps == pytest.approx(8 * mean, rel=0.5), name


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"only": "axolotl"}, "--only axolotl: Input should be 'both' or 'ours'"),
        ({"size": "huge"}, "--size: there is no size 'huge'"),
    ],
)
def test_an_impossible_measurement_is_one_error(changed: dict[str, str], words: str) -> None:
    with pytest.raises((UsageError, InputError), match=words):
        check(validated(TrainingOptions, OPTIONS.model_dump() | changed))


def test_without_trl_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_TRL", ("no_such_package",))
    with pytest.raises(UsageError, match=r"in the checkout: pip install .*'\.\[peers\]'"):
        check(OPTIONS.model_copy(update={"only": "both"}))

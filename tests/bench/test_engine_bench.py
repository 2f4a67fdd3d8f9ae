"""`bench engine` on a micro model, with every peer that needs no compiled extra."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from loopline import workers
from loopline.bench.proofs.engine import proof
from loopline.bench.proofs.engine.proof import (
    OURS_TORCH,
    VLLM,
    VLLM_DIRECT,
    VLLM_WORKER,
    Runs,
)
from loopline.bench.proofs.engine.transformers_peers import StaticBatch
from loopline.bench.proofs.engine.workload import Measured, Timing, asks
from loopline.bench.proofs.harness import show
from loopline.bench.proofs.isolated_process import isolated_worker
from loopline.bench.proofs.outcome import Outcome
from tests.bench.command_line import bench

pytestmark = pytest.mark.slow

LATENCIES = ("first token p50", "first token p99", "per token p50", "per token p99", "request p99")
SLM = Path(workers.__path__[0]) / "micro_models" / "slm"


@pytest.mark.timeout(400)
def test_the_torch_engine_is_measured_against_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One process for all: each would import torch again, and this test compares nothing.
    monkeypatch.setattr(proof, "isolated_worker", lambda: isolated_worker(None))
    page = tmp_path / "deep" / "engine.html"
    arguments = (
        "--model", "micro:slm", "--only", "torch", "--concurrency", "2", "--repeats", "1",
        "--threads", "1", "--output", str(page), "--json",
    )  # fmt: skip
    process = bench("engine", *arguments)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout.splitlines()[-1])["measurements"]
    assert result["torch_vs_generate_2"]["value"] > 0
    assert result["torch_vs_continuous_2"]["value"] > 0
    peers = {key.split(" / ")[1] for key in result if key.startswith("2 in flight / ")}
    assert peers == {"ours (torch)", "generate", "continuous batching"}

    def of(peer: str, quantity: str) -> float | None:
        return result[f"2 in flight / {peer} / {quantity}"]["value"]

    for peer in peers:
        rate = result[f"2 in flight / {peer} / tokens/s"]
        assert rate["low"] == rate["value"] == rate["high"] > 0
    latencies = [of("ours (torch)", name) for name in LATENCIES]
    assert None not in latencies
    assert result["2 in flight / ours (torch) / first token p50"]["value"] <= 1000 * (
        latencies[-1] or 0
    )
    # A batch arrives as a whole, and is sent after the previous one has returned.
    assert of("generate", "first token p99") == pytest.approx(
        1000 * (of("generate", "request p99") or 0)
    )
    assert of("generate", "per token p50") is of("generate", "per token p99") is None
    # Its scheduler chooses the time of sending.
    assert [of("continuous batching", name) for name in LATENCIES] == [None] * len(LATENCIES)
    text = page.read_text()
    assert "continuous batching" in text
    assert "<script src=" not in text, "the page needs nothing else"


def test_micro_models_are_judged_by_the_ratio_to_vllm_with_many_requests_in_flight() -> None:
    def rate(tokens: int) -> list[Measured]:
        return [Measured(seconds=1.0, tokens=tokens)]

    peers = {
        OURS_TORCH: rate(160), VLLM: rate(100), VLLM_WORKER: rate(90), VLLM_DIRECT: rate(100),
    }  # fmt: skip
    for is_micro, torch_met in ((True, True), (False, None)):
        runs = Runs(is_micro=is_micro, by_places={16: peers, 64: peers})
        met = {figure.name: figure.met for figure in runs.measurements() if not figure.subject}
        assert met == {
            "torch_vs_vllm_16": None, "worker_vs_vllm_16": False,
            "torch_vs_vllm_64": torch_met, "worker_vs_vllm_64": False,
        }  # fmt: skip


async def test_a_static_batch_is_sent_after_the_previous_batch_has_returned() -> None:
    peer = StaticBatch(SLM, threads=1)
    await peer.start()
    try:
        report = await peer.run(asks(2, seed=0), 2)
    finally:
        await peer.close()
    batches = [report.timings[first : first + 2] for first in range(0, len(report.timings), 2)]
    assert len(batches) == 3
    for batch, following in pairwise(batches):
        [ended] = {time for request in batch for time in request.tokens}
        assert all(request.sent >= ended for request in following)


def shown(runs: Runs, width: int) -> str:
    console = Console(record=True, width=width)
    show(Outcome(measurements=runs.measurements()), console)
    return console.export_text()


def test_an_unmeasured_latency_is_a_dash() -> None:
    text = shown(Runs(by_places={1: {"untimed": [Measured(seconds=2.0, tokens=50)]}}), 200)
    row = next(line for line in text.splitlines() if "untimed" in line)
    assert row.count("–") == 5, row
    assert "nan" not in row


def test_a_table_of_figures_fits_80_columns() -> None:
    timing = Timing(0.0, [1.2345, 1.3456, 1.9876], prompt=77_777, reused=65_432)
    runs = [Measured(1.0, tokens, [timing]) for tokens in (3_456, 3_457)]
    text = shown(Runs(by_places={16: {"ours": runs}}), 80)
    assert "…" not in text
    for cell in ("3,456", "(3,456–3,457)", "1,234", "377", "642", "24,690", "130,864"):
        assert cell in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--concurrency", "1,x"), "numbers from 1 to 200"),
        (("--only", "tgi"), "--only tgi: choose from llama_cpp, torch, vllm, both"),
        (("--only", "torch", "--model", "/nowhere"), "no folder with a config.json"),
        (("--only", "torch", "--model", "micro:none"), "no micro model 'micro:none'; shipped"),
        (("--only", "torch", "--precision", "q9"), "--precision is one of f32"),
    ],
)
def test_an_impossible_measurement_is_one_error(arguments: tuple[str, ...], words: str) -> None:
    process = bench("engine", *arguments)
    assert process.returncode != 0
    assert words in process.stderr
    assert "Traceback" not in process.stderr

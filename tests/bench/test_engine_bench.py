"""`bench engine` on a micro model, with every peer that needs no compiled extra."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from loopline import workers
from loopline.bench.proofs.engine import report
from loopline.bench.proofs.engine.figures import Figures, Report
from loopline.bench.proofs.engine.transformers_peers import StaticBatch
from loopline.bench.proofs.engine.workload import Measured, Timing, asks
from tests.bench.command_line import bench

pytestmark = pytest.mark.slow

LATENCIES = ("first_token_p50", "first_token_p99", "per_token_p50", "per_token_p99", "request_p99")
COMMAND = (sys.executable, "-c", "from loopline.bench.cli import main; main()", "engine")
SLM = Path(workers.__path__[0]) / "micro_models" / "slm"


@pytest.mark.timeout(400)
def test_the_torch_engine_is_measured_beside_what_transformers_offers(tmp_path: Path) -> None:
    page = tmp_path / "deep" / "engine.html"
    arguments = (
        "--model", "micro:slm", "--only", "torch", "--concurrency", "2", "--repeats", "1",
        "--threads", "1", "--output", str(page), "--json",
    )  # fmt: skip
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=350)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["torch_vs_generate_2"] > 0
    assert found["torch_vs_continuous_2"] > 0
    peers = found["figures"]["2"]
    assert set(peers) == {"ours (torch)", "generate", "continuous batching"}
    for figures in peers.values():
        middle, least, greatest = figures["tokens_per_second"]
        assert least == middle == greatest > 0
    assert peers["ours (torch)"]["first_token_p50"] <= peers["ours (torch)"]["request_p99"]
    assert None not in [peers["ours (torch)"][name] for name in LATENCIES]
    # A batch comes whole, and is sent when the one before it has come.
    assert peers["generate"]["first_token_p99"] == peers["generate"]["request_p99"] > 0
    assert peers["generate"]["per_token_p50"] is peers["generate"]["per_token_p99"] is None
    # Its scheduler sends when it likes.
    assert [peers["continuous batching"][name] for name in LATENCIES] == [None] * len(LATENCIES)
    text = page.read_text()
    assert "continuous batching" in text
    assert "<script src=" not in text, "the page needs nothing else"


async def test_a_request_of_a_static_batch_is_sent_when_the_batch_before_it_has_come() -> None:
    peer = StaticBatch(SLM, threads=1)
    await peer.start()
    try:
        found = await peer.run(asks(2, seed=0), 2)
    finally:
        await peer.close()
    batches = [found.timings[first : first + 2] for first in range(0, len(found.timings), 2)]
    assert len(batches) == 3
    for batch, following in pairwise(batches):
        [ended] = {time for each in batch for time in each.tokens}
        assert all(each.sent >= ended for each in following)


def test_a_latency_that_nobody_saw_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {1: {"untimed": Figures([Measured(seconds=2.0, tokens=50)])}}
    report.show(Report("a model", "bf16", "a machine", {}, figures), Console(width=200))
    row = next(line for line in capsys.readouterr().out.splitlines() if "untimed" in line)
    assert row.count("–") == 5, row
    assert "nan" not in row


def test_a_table_of_figures_is_whole_on_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    timing = Timing(0.0, [1.2345, 1.3456, 1.9876], prompt=77_777, reused=65_432)
    figures = {16: {"ours": Figures([Measured(1.0, 3_456, [timing])])}}
    report.show(Report("a model", "bf16", "a machine", {}, figures), Console(width=80))
    shown = capsys.readouterr().out
    assert "…" not in shown
    for cell in ("3,456", "(3,456–3,456)", "1,234.5", "376.6", "636.7", "12,345", "65,432"):
        assert cell in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--concurrency", "1,x"), "numbers from 1 to 200"),
        (("--only", "vllm"), "choose one of both, llama_cpp, torch"),
        (("--only", "torch", "--model", "/nowhere"), "no folder with a config.json"),
        (("--only", "torch", "--model", "micro:none"), "no micro model 'micro:none'; shipped"),
        (("--only", "torch", "--precision", "q9"), "--precision is one of f32"),
    ],
)
def test_what_cannot_be_measured_is_one_error(arguments: tuple[str, ...], words: str) -> None:
    done = bench("engine", *arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr

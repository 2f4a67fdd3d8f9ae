"""`bench engine` on a micro model, with every peer that needs no compiled extra."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.command_line import bench

COMMAND = (sys.executable, "-c", "from bench.cli import main; main()", "engine")


@pytest.mark.timeout(400)
def test_the_torch_engine_is_measured_beside_what_transformers_offers(tmp_path: Path) -> None:
    page = tmp_path / "deep" / "engine.html"
    arguments = (
        "--model", "micro:slm", "--only", "torch", "--concurrency", "4", "--repeats", "1",
        "--output", str(page), "--json",
    )  # fmt: skip
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=350)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["torch_vs_generate_4"] > 0
    assert found["torch_vs_continuous_4"] > 0
    peers = found["figures"]["4"]
    assert set(peers) == {"ours (torch)", "generate", "continuous batching"}
    for figures in peers.values():
        middle, least, greatest = figures["tokens_per_second"]
        assert least == middle == greatest > 0
    assert peers["ours (torch)"]["first_token_p50"] <= peers["ours (torch)"]["request_p99"]
    text = page.read_text()
    assert "continuous batching" in text
    assert "<script src=" not in text, "the page needs nothing else"


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

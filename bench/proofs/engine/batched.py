"""llama.cpp's own llama-batched-bench, and ours on the same batch."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path

from loopline.agents.records import Message, SamplingParams
from loopline.bench.errors import BenchError
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, GenerateRequest
from loopline.workers.engines.settings import ModelSettings

PLACES = 16
GENERATED = 64
PROMPT = 300


def measure_reference(binary: Path, gguf: Path, *, threads: int) -> float:
    """Return the seconds for one prompt of 300 tokens shared by 16 sequences of 64 tokens each.
    Raises `BenchError` if the program cannot be run or has unexpected output."""
    process = subprocess.run(
        [
            str(binary), "-m", str(gguf), "-c", "4096", "-npp", str(PROMPT), "-ntg", str(GENERATED),
            "-npl", str(PLACES), "-pps", "-t", str(threads), "-tb", str(threads), "-kvu",
            "--output-format", "jsonl",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    printed = process.stdout.decode(errors="replace").splitlines()
    lines = [line for line in printed if line.startswith("{")]
    if process.returncode != 0 or not lines:
        raise BenchError(f"{binary} failed (exit code {process.returncode})")
    return float(json.loads(lines[-1])["t"])


def measure_engine(gguf: Path, *, threads: int) -> float:
    """Return the seconds for the same through the engine: one request for 16 completions."""
    return asyncio.run(_measure_engine(gguf, threads))


async def _measure_engine(gguf: Path, threads: int) -> float:
    engine = build_engine(
        ModelSettings(engine="llama_cpp", model=str(gguf), threads=threads, max_concurrency=PLACES)
    )
    await engine.start()
    try:
        # A first request, so that the measured time contains no first-time work.
        for words in (1, PROMPT):
            request = GenerateRequest(
                id=f"batched-{words}",
                messages=(Message(role="user", content="a " * words),),
                sampling=SamplingParams(temperature=1.0, seed=1, max_tokens=GENERATED, n=PLACES),
            )
            started = time.perf_counter()
            tokens = 0
            async for event in engine.submit(request):
                if isinstance(event, Completion):
                    tokens += event.usage.completion
            seconds = time.perf_counter() - started
        return seconds * PLACES * GENERATED / tokens
    finally:
        await engine.close()

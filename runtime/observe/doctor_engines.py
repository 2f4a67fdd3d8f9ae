"""Estimates which engine serves a pool's model best on this machine, and how fast.

A decoding step reads all weights once, and the keys and values of each row, so memory bandwidth
limits it. For small models an engine's overhead per step decides: `torch` is eager (it launches
some dozens of kernels per layer one by one), vLLM replays a captured graph and has a scheduler in
another process. On a CPU, these overheads were measured with `bench engine --only torch,vllm` for a
step of a micro model with 64 rows; on a GPU they are computed, not measured.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from loopline.workers.engines.settings import ModelSettings

ROWS = 64
"""Number of completions decoded together."""
CONTEXT = 1024
"""Tokens per completion: prompt and answer so far."""
GPU_BANDWIDTH = {
    "H200": 4.8e12, "H100": 3.35e12, "A100": 2.0e12, "L40": 0.86e12, "A10": 0.6e12, "L4": 0.3e12,
    "4090": 1.0e12, "3090": 0.94e12, "T4": 0.32e12,
}  # fmt: skip
"""Bytes per second by part of the card's name, from the manufacturers' data sheets."""
_SHARE = 0.65
"""Share of the bandwidth limit that real kernels reach."""
_TORCH_LAYER_GPU = 1.2e-3
"""Seconds that `torch` adds per layer and step on a GPU to launch about 64 kernels."""
_VLLM_STEP_GPU = 1.0e-3
_TORCH_LAYER_CPU = 8e-3
_VLLM_STEP_CPU = 80e-3
"""Seconds per step for messages between vLLM's processes, and for sampling."""
_COPIED_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Shape:
    """Properties of a model that determine its speed."""

    parameters: float
    layers: int
    kv_bytes: float
    """Bytes of one token's keys and values in 16-bit precision."""


@dataclass(frozen=True)
class Estimate:
    """Estimate for one engine with `ROWS` rows of `CONTEXT` tokens."""

    engine: str
    tokens_per_second: float
    memory: float
    """Bytes of weights, keys and values."""

    def __str__(self) -> str:
        return f"{self.engine} {self.tokens_per_second:,.0f} tokens/s, {self.memory / 1e9:.1f} GB"


def shape_of(folder: Path) -> Shape | None:
    """Read the shape from a model's files; None unless they describe a known kind of decoder."""
    try:
        config: Any = json.loads((folder / "config.json").read_text())
        config = cast(dict[str, Any], config.get("text_config") or config)
        hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
        heads = int(config["num_attention_heads"])
        width = int(config.get("head_dim") or hidden // heads)
        kv_width = width * int(config.get("num_key_value_heads") or heads)
        inner, vocabulary = int(config["intermediate_size"]), int(config["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None
    embeddings = 1 if config.get("tie_word_embeddings") else 2
    layer = 2 * hidden * width * heads + 2 * hidden * kv_width + 3 * hidden * inner
    return Shape(layers * layer + embeddings * vocabulary * hidden, layers, 4.0 * layers * kv_width)


def estimates(shape: Shape, gpu: str, bandwidth: float) -> list[Estimate]:
    """Estimate the engines, best first. `gpu` is empty on a machine without a GPU; `bandwidth` is
    in bytes per second."""
    width = 2 if gpu else 4  # bfloat16 on a GPU, float32 on a CPU
    kv = ROWS * CONTEXT * shape.kv_bytes * width / 2
    weights = shape.parameters * width
    seconds = (weights + kv) / (bandwidth * _SHARE)
    if not gpu:
        # On a CPU, arithmetic limits a batch: two operations per weight and row.
        seconds = max(seconds, 2 * shape.parameters * ROWS / (bandwidth * _SHARE * 4))
    torch_step = seconds + shape.layers * (_TORCH_LAYER_GPU if gpu else _TORCH_LAYER_CPU)
    vllm_step = seconds + (_VLLM_STEP_GPU if gpu else _VLLM_STEP_CPU)
    ranking = [
        Estimate("torch", ROWS / torch_step, weights + kv),
        Estimate("vllm", ROWS / vllm_step, weights + kv),
    ]
    return sorted(ranking, key=lambda estimate: -estimate.tokens_per_second)


def memory_bandwidth() -> float:
    """Measure how many bytes per second one core copies, counting reads and writes."""
    source = bytearray(_COPIED_BYTES)
    bytes(source)  # maps the pages
    began = time.perf_counter()
    bytes(source)
    return 2 * _COPIED_BYTES / (time.perf_counter() - began)


def gpu_bandwidth(name: str) -> float | None:
    """Return a card's bandwidth in bytes per second; None for an unknown card."""
    return next((value for part, value in GPU_BANDWIDTH.items() if part in name), None)


def capacity(gpu: str) -> float:
    """Return the bytes of a card's memory, from its name in the form `… 80 GiB`; without a card,
    those of this machine's memory."""
    size = re.search(r"([\d.]+) GiB", gpu)
    if size is not None:
        return float(size[1]) * 2**30
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def advice(model: ModelSettings, folder: Path, gpu: str) -> Iterator[str]:
    """Yield advice in a sentence, if the files contain the needed values. `gpu` is the card's name
    or empty."""
    shape = shape_of(folder)
    bandwidth = gpu_bandwidth(gpu) if gpu else memory_bandwidth()
    if shape is None or bandwidth is None:
        return
    ranked = estimates(shape, gpu, bandwidth)
    best = ranked[0]
    cause = "its captured graphs" if best.engine == "vllm" else "the least overhead"
    where = gpu or "this CPU"
    # Its steps resemble vLLM's: captured graphs, a scheduler in another process.
    alike = "; sglang as vllm" if gpu else ""
    yield (
        f"{shape.parameters / 1e6:,.0f} million parameters on {where}: {best.engine} serves it "
        f"best ({cause}); computed for {ROWS} rows of {CONTEXT} tokens: "
        f"{'; '.join(map(str, ranked))}{alike}. The pool has {model.engine}"
    )
    there = capacity(gpu)
    if best.memory > there:
        yield (
            f"that needs {best.memory / 1e9:.1f} GB, and {where} has {there / 1e9:.1f} GB: fewer "
            "rows (max_concurrency), shorter contexts (max_context) or a smaller model"
        )

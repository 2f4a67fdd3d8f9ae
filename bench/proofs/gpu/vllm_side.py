"""The same rollouts on a vLLM server, and the bound that the card's memory bandwidth sets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import torch

from loopline.bench.proofs.gpu.serving import Answers, Workload, ask, warm_up
from loopline.bench.proofs.isolated_process import redirect_logs
from loopline.runtime.observe.doctor_engines import gpu_bandwidth, shape_of
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.server_settings import VllmSettings
from loopline.workers.engines.settings import ModelSettings

SHARE = 0.6
"""Share of the card's memory that the server takes: weights, and a cache that fills the rest."""
_CPU = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""Variables for a server without a GPU, which would take half of the machine's memory, and a core
for each thread."""


@dataclass(frozen=True)
class Served:
    """The rollouts on a vLLM server."""

    answers: Answers
    memory_mb: float | None
    """Memory of the card that the server takes; None without a GPU."""


def settings(work: Workload, model: Path, threads: int) -> ModelSettings:
    """Settings of a pool on a vLLM server that serves for training."""
    gpu = torch.cuda.is_available()
    environment = {} if gpu else {**_CPU, "OMP_NUM_THREADS": str(threads)}
    server = VllmSettings(
        max_adapters=0,
        plain_check=False,
        gpu_share=SHARE if gpu else None,
        args={} if gpu else {"enforce-eager": True, "max-model-len": 4_096},
        environment=environment,
    )
    pool = work.settings(model, threads).model_dump(exclude_unset=True)
    return ModelSettings.model_validate({**pool, "engine": "vllm", "vllm": server})


def sample(work: Workload, model: Path, threads: int) -> Served:
    """Start a server, and sample the groups that the torch engine has sampled."""
    redirect_logs()

    async def run() -> Served:
        engine = build_engine(settings(work, model, threads))
        before = _used_mb()
        try:
            await engine.start()
            await warm_up(engine, work)
            answers = await ask(engine, work.requests("rollout", adapters=False))
            after = _used_mb()
        finally:
            await engine.close()
        return Served(answers, None if before is None or after is None else after - before)

    return asyncio.run(run())


def bandwidth_bound(model: Path, answers: Answers, card: str) -> float | None:
    """Return the most tokens per second that the card's memory allows: each step reads all weights
    once, and the keys and values of every row, in 16 bits. None for an unknown card."""
    shape, bandwidth = shape_of(model), gpu_bandwidth(card)
    if shape is None or bandwidth is None:
        return None
    rows = [completion for every in answers.completions for completion in every]
    context = sum(len(row.prompt_ids) + len(row.output_ids) / 2 for row in rows)
    return len(rows) * bandwidth / (2 * shape.parameters + context * shape.kv_bytes)


def _used_mb() -> float | None:
    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    return round((total - free) / 1e6, 1)

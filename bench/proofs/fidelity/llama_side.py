"""llama.cpp's log-probabilities against torch's, on the same weights and the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from loopline.bench.proofs.fidelity.reference import Reference
from loopline.bench.proofs.fidelity.workload import answers, requests
from loopline.trainers.export.gguf import export_gguf
from loopline.trainers.export.precision import Precision
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.llama_cpp.context import Feed, LlamaContext
from loopline.workers.engines.llama_cpp.loading import load_gguf
from loopline.workers.engines.protocol import Completion
from loopline.workers.engines.settings import ModelSettings

READ = 256
"""Tokens per call."""


@dataclass
class Agreement:
    """Agreement over every token that follows another, in prompts and outputs."""

    same: int = 0
    """Positions with the same most likely token."""
    differences: list[float] = field(default_factory=list[float])
    """|llama.cpp - torch| in nats, for the token at each position."""

    @property
    def share(self) -> float:
        return self.same / len(self.differences)


def compare(
    folder: Path,
    scratch: Path,
    precision: Precision,
    reference: Reference,
    sequences: Sequence[Sequence[int]],
    *,
    threads: int,
) -> Agreement:
    """Compare both on the same tokens, so that one difference does not cause others."""
    settings = _settings(folder, scratch, precision, threads)
    loaded = load_gguf(settings)
    agreement = Agreement()
    try:
        context = LlamaContext(
            loaded.model,
            cells=max(map(len, sequences)),
            sequences=1,
            batch=READ,
            threads=threads,
            exact=settings.dtype == "float32",
        )
        try:
            for ids in sequences:
                expected = reference.logits(ids[:-1])
                llama_logits = torch.cat(
                    [
                        torch.from_numpy(
                            context.decode(
                                [Feed(0, start, ids[:-1][start : start + READ], wanted)]
                            ).copy()
                        )
                        for start in range(0, len(ids) - 1, READ)
                        for wanted in [min(READ, len(ids) - 1 - start)]
                    ]
                )
                context.drop(0)
                agreement.same += int((expected.argmax(-1) == llama_logits.argmax(-1)).sum())
                apart = _target_logprobs(expected, ids) - _target_logprobs(llama_logits, ids)
                agreement.differences.extend(apart.abs().tolist())
        finally:
            context.close()
    finally:
        loaded.close()
    return agreement


async def greedy(
    folder: Path,
    scratch: Path,
    torch_completions: Sequence[Completion],
    *,
    prompts: int,
    seed: int,
    together: int,
    threads: int,
) -> tuple[int, int]:
    """Compare the engine's own batched answers in f32: positions with the same token as torch's,
    and all positions up to the first difference of each answer."""
    generate_requests = requests(prompts, seed)
    places = [
        place
        for place, request in enumerate(generate_requests)
        if request.sampling.temperature == 0.0
    ]
    engine = build_engine(_settings(folder, scratch, Precision.F32, threads))
    await engine.start()
    try:
        completions = await answers(
            engine, [generate_requests[place] for place in places], together=together
        )
    finally:
        await engine.close()
    same = positions = 0
    for completion, place in zip(completions, places, strict=True):
        for mine, torch_id in zip(
            completion.output_ids, torch_completions[place].output_ids, strict=False
        ):
            positions += 1
            if mine != torch_id:
                break
            same += 1
    return same, positions


def _settings(folder: Path, scratch: Path, precision: Precision, threads: int) -> ModelSettings:
    path = scratch / f"{precision}.gguf"
    if not path.exists():
        export_gguf(folder, path, precision)
    exact = precision == Precision.F32
    return ModelSettings(
        engine="llama_cpp", model=str(path), threads=threads,
        dtype="float32" if exact else "auto",
    )  # fmt: skip


def _target_logprobs(logits: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Return the log-probability of each of `ids[1:]`, shape (ids - 1,)."""
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]

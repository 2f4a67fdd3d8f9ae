"""The engine's log-probabilities against a plain forward pass of transformers on the same ids."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loopline.workers.engines.protocol import Completion


@dataclass
class Parity:
    """Absolute differences of log-probabilities in nats, one per token."""

    engine_to_transformers: list[float] = field(default_factory=list[float])
    """Differences from transformers, both in bfloat16."""
    engine_to_exact: list[float] = field(default_factory=list[float])
    """Differences from transformers in float32."""
    transformers_to_exact: list[float] = field(default_factory=list[float])
    """Rounding of bfloat16 itself: no computation in bfloat16 gets much closer than this."""
    adapter: list[float] = field(default_factory=list[float])
    """Differences of answers with adapters from transformers with the same adapter."""
    no_adapter: list[float] = field(default_factory=list[float])
    """Differences of the same answers from transformers without an adapter."""


def compare(
    base: Path,
    plain: Sequence[Completion],
    adapted: Sequence[Completion],
    adapters: Mapping[str, Path],
) -> Parity:
    """Compare answers of the base, and of adapters by the names under which they are served."""
    import torch

    from loopline.bench.proofs.fidelity.reference import Reference

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # The previous trained model is in a reference cycle with its adapters.
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    parity = Parity()
    reference = Reference(base, torch.bfloat16, device)
    rounded = [
        reference.logprobs(completion.prompt_ids, completion.output_ids) for completion in plain
    ]
    for completion in adapted:
        assert completion.adapter is not None
        engine_logprobs, ids = (
            torch.tensor(completion.logprobs, device=device),
            (completion.prompt_ids, completion.output_ids),
        )
        parity.adapter += (
            (engine_logprobs - reference.logprobs(*ids, adapters[completion.adapter]))
            .abs()
            .tolist()
        )
        parity.no_adapter += (engine_logprobs - reference.logprobs(*ids)).abs().tolist()
    del reference
    reference = Reference(base, torch.float32, device)
    for completion, low in zip(plain, rounded, strict=True):
        engine_logprobs = torch.tensor(completion.logprobs, device=device)
        exact = reference.logprobs(completion.prompt_ids, completion.output_ids)
        parity.engine_to_transformers += (engine_logprobs - low).abs().tolist()
        parity.engine_to_exact += (engine_logprobs - exact).abs().tolist()
        parity.transformers_to_exact += (low - exact).abs().tolist()
    return parity

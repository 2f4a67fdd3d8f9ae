"""The engine's log-probabilities against a plain forward pass of transformers on the same ids."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loopline.workers.engines.protocol import Completion


@dataclass
class Parity:
    """|difference| in nats, of each token."""

    engine_to_transformers: list[float] = field(default_factory=list[float])
    """Both in bfloat16."""
    engine_to_exact: list[float] = field(default_factory=list[float])
    """To transformers in float32."""
    transformers_to_exact: list[float] = field(default_factory=list[float])
    """What bfloat16 itself rounds: nothing that computes in it is nearer than about this."""
    adapter: list[float] = field(default_factory=list[float])
    """Of answers by adapters, to transformers with the same adapter."""
    no_adapter: list[float] = field(default_factory=list[float])
    """Of the same answers, to transformers without one."""


def compare(
    base: Path,
    plain: Sequence[Completion],
    adapted: Sequence[Completion],
    adapters: Mapping[str, Path],
) -> Parity:
    """Answers of the base, and of adapters by the name that they are served by."""
    import torch

    from loopline.bench.proofs.fidelity.reference import Reference

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # What was trained here before is in a cycle of references with its adapters.
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    found = Parity()
    reference = Reference(base, torch.bfloat16, device)
    rounded = [reference.logprobs(each.prompt_ids, each.output_ids) for each in plain]
    for each in adapted:
        assert each.adapter is not None
        said, ids = torch.tensor(each.logprobs, device=device), (each.prompt_ids, each.output_ids)
        found.adapter += (said - reference.logprobs(*ids, adapters[each.adapter])).abs().tolist()
        found.no_adapter += (said - reference.logprobs(*ids)).abs().tolist()
    del reference
    reference = Reference(base, torch.float32, device)
    for each, low in zip(plain, rounded, strict=True):
        said = torch.tensor(each.logprobs, device=device)
        exact = reference.logprobs(each.prompt_ids, each.output_ids)
        found.engine_to_transformers += (said - low).abs().tolist()
        found.engine_to_exact += (said - exact).abs().tolist()
        found.transformers_to_exact += (low - exact).abs().tolist()
    return found

"""The log-probabilities of the torch engine, or of a vLLM server, compared with a plain pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from loopline.bench.proofs.engine.vllm_servers import vllm_settings
from loopline.bench.proofs.fidelity.reference import Reference
from loopline.bench.proofs.fidelity.workload import answers, requests
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion
from loopline.workers.engines.settings import ModelSettings

Dtype = Literal["float32", "float64"]


@dataclass
class Differences:
    """|engine - reference| in nats, for each output token of one way of asking."""

    greedy: list[float] = field(default_factory=list[float])
    sampled: list[float] = field(default_factory=list[float])
    requests: int = 0

    def add(self, mine: Sequence[float], reference: Sequence[float], *, sampled: bool) -> None:
        """Add one more request."""
        apart = [abs(a - b) for a, b in zip(mine, reference, strict=True)]
        (self.sampled if sampled else self.greedy).extend(apart)
        self.requests += 1

    @property
    def all(self) -> list[float]:
        return [*self.greedy, *self.sampled]


async def compare(
    folder: Path,
    reference: Reference,
    adapters: Sequence[Path],
    *,
    prompts: int,
    seed: int,
    together: int,
    threads: int,
    dtype: Dtype = "float32",
    plain: bool = False,
    engine_name: Literal["torch", "vllm"] = "torch",
) -> tuple[dict[str, Differences], list[Completion]]:
    """Return the differences by way of asking, and the completions of the requests that ran alone
    without an adapter. `plain`: the engine computes log-probabilities in a pass at a completion's
    end."""
    if engine_name == "vllm":
        settings = vllm_settings(
            str(folder), threads=threads, places=together, adapters=len(adapters)
        ).model_copy(update={"plain_logprobs": plain})
    else:
        settings = ModelSettings(
            engine="torch", model=str(folder), dtype=dtype, device="cpu",
            threads=threads, max_concurrency=together, plain_logprobs=plain,
        )  # fmt: skip
    paths = {f"adapter-{number}": path for number, path in enumerate(adapters)}
    differences: dict[str, Differences] = {}
    alone: list[Completion] = []
    for way, places, names in (
        ("alone", 1, [None]),
        ("batched", together, [None]),
        ("adapters in one batch", together, [None, *paths]),
    ):
        # Restarted each time, so that no cache remains from the previous way.
        engine = build_engine(settings)
        await engine.start()
        try:
            for name in names:
                if name is not None:
                    await engine.load_adapter(name, str(paths[name]), 1)
            completions = await answers(engine, requests(prompts, seed, names), together=places)
        finally:
            await engine.close()
        alone = alone or completions
        for number, completion in enumerate(completions):
            suffix = ", beginning known" if completion.usage.cached else ""
            path = None if completion.adapter is None else paths[completion.adapter]
            expected = reference.logprobs(
                completion.prompt_ids, completion.output_ids, path
            ).tolist()
            into = differences.setdefault(way + suffix, Differences())
            into.add(completion.logprobs, expected, sampled=number % 2 == 1)
    return differences, alone


def rounding_differences(
    folder: Path, reference: Reference, completions: Sequence[Completion]
) -> tuple[Differences, Differences]:
    """Differences of the plain pass and of the engine from a pass in float64, on the same tokens:
    in float32 the two can't be closer to each other than both are to the exact values."""
    exact = Reference(folder, torch.float64)
    plain, engine = Differences(), Differences()
    for number, completion in enumerate(completions):
        ids = completion.prompt_ids, completion.output_ids
        expected = exact.logprobs(*ids).tolist()
        sampled = number % 2 == 1
        plain.add(reference.logprobs(*ids).tolist(), expected, sampled=sampled)
        engine.add(completion.logprobs, expected, sampled=sampled)
    return plain, engine

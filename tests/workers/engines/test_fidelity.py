"""The engines' log-probabilities match a trainer's: a small `bench fidelity`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from loopline.bench.proofs.fidelity import torch_side
from loopline.bench.proofs.fidelity.proof import NEAR, quantiles
from loopline.bench.proofs.fidelity.reference import Reference, random_adapter
from loopline.bench.proofs.fidelity.workload import answers, requests
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local.model_files import local_folder
from loopline.workers.engines.settings import ModelSettings

pytestmark = pytest.mark.slow

PROMPTS = 40
TOGETHER = 8

FOLDER = local_folder("micro:llm")


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(FOLDER)


async def test_torch_logprobs_match_a_plain_forward_pass(
    reference: Reference, tmp_path: Path
) -> None:
    """Rows run alone, batched, after cached prefixes, with an adapter for each row. Float32 rounds
    by more than 1e-5 for one token in a hundred, in the plain pass as well: the engine must be no
    farther from float64 than that."""
    adapters = [random_adapter(reference, tmp_path / f"{seed}", seed) for seed in range(3)]
    ways, alone = await torch_side.compare(
        FOLDER, reference, adapters,
        prompts=PROMPTS, seed=3, together=TOGETHER, threads=1,
    )  # fmt: skip
    assert len(ways) == 6, "each way of asking, with and without a known beginning"
    for way, deviation in ways.items():
        assert deviation.greedy, way
        assert deviation.sampled, way
        assert quantiles(deviation.all)["p90"] < 1e-5, way
        assert max(deviation.all) < 1e-4, way
    plain, engine = torch_side.rounding_differences(FOLDER, reference, alone)
    assert sum(engine.all) < 1.25 * sum(plain.all)


async def test_plain_logprobs_match_a_plain_forward_pass_for_every_token(
    reference: Reference, tmp_path: Path
) -> None:
    adapters = [random_adapter(reference, tmp_path / f"{seed}", seed) for seed in range(3)]
    ways, _ = await torch_side.compare(
        FOLDER, reference, adapters,
        prompts=PROMPTS, seed=3, together=TOGETHER, threads=1, plain=True,
    )  # fmt: skip
    assert len(ways) == 6, "each way of asking, with and without a known beginning"
    for way, deviation in ways.items():
        assert max(deviation.all) <= NEAR, way


async def test_without_rounding_no_token_differs_from_a_plain_forward_pass(tmp_path: Path) -> None:
    exact = Reference(FOLDER, torch.float64)
    adapters = [random_adapter(exact, tmp_path / f"{seed}", seed) for seed in range(3)]
    ways, _ = await torch_side.compare(
        FOLDER, exact, adapters,
        prompts=12, seed=3, together=TOGETHER, threads=1, dtype="float64",
    )  # fmt: skip
    assert len(ways) == 6, "each way of asking, with and without a known beginning"
    for way, deviation in ways.items():
        assert max(deviation.all) < 1e-5, way


async def test_llama_cpp_in_f32_generates_the_same_text_as_torch(
    reference: Reference, tmp_path: Path
) -> None:
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    from loopline.bench.proofs.fidelity import llama_side
    from loopline.trainers.export.precision import Precision

    engine = build_engine(ModelSettings(engine="torch", model="micro:llm"))
    await engine.start()
    try:
        results = await answers(engine, requests(PROMPTS, 3), together=TOGETHER)
    finally:
        await engine.close()
    same, positions = await llama_side.greedy(
        FOLDER, tmp_path, results, prompts=PROMPTS, seed=3, together=TOGETHER, threads=1
    )
    assert positions > 200
    assert same >= 0.99 * positions
    sequences = [[*completion.prompt_ids, *completion.output_ids] for completion in results[:10]]
    shares: list[float] = []
    for precision in (Precision.F32, Precision.Q8_0, Precision.Q4_K_M):
        comparison = llama_side.compare(
            FOLDER, tmp_path, precision, reference, sequences, threads=1
        )
        assert len(comparison.differences) == sum(map(len, sequences)) - len(sequences)
        shares.append(comparison.share)
        if precision is Precision.F32:
            assert quantiles(comparison.differences)["p99"] < 1e-4
    assert shares[0] >= 0.99
    assert shares == sorted(shares, reverse=True), "fewer bits, less agreement"


def test_only_torch_accepts_float64() -> None:
    with pytest.raises(ValueError, match=r"float64.*torch"):
        ModelSettings(engine="llama_cpp", model="micro.gguf", dtype="float64")

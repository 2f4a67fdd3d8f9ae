"""`--precision bfloat16` with adapters: half the bytes for the base, nearly the same training."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.records import Message, SamplingParams, Trajectory
from loopline.trainers.core.network import load_base, network_of
from loopline.trainers.grpo.data import GrpoData
from loopline.trainers.grpo.groups import Group, GroupKey, Member, seal
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.pipeline import StepListener, initial_policies, train
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.report import Report
from loopline.trainers.grpo.rows import micro_batches_of, rows_of
from loopline.trainers.grpo.sequences import TokenSequence
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.stream import step_batches
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.loading import LoadedModel

from .recorded import record
from .tiny_grpo import data_in, load, rollouts, sealing_of, settings_of, write_base

pytest.importorskip("peft", reason="needs make install")

ROLES = ("coder", "tester")
NEAR = 0.99
"""Cosine between the gradients in float32 and in bfloat16, matrix by matrix: an 8-bit mantissa
leaves a rounding error of 0.4 % in every product."""
APART = 0.01
"""Nats between the log-probabilities of an engine and a trainer that both compute in bfloat16."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("bfloat16") / "base")


def adapters(**changes: object) -> GrpoSettings:
    return settings_of(weights="lora", policies="per-role", rank=4, precision="bfloat16", **changes)


def held(base: Path, settings: GrpoSettings) -> LoadedModel:
    """The base in the form that `train grpo` loads."""
    return load_base(str(base), settings.base_precision)


def size(parameters: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def test_the_base_beneath_adapters_takes_half_the_bytes_and_trained_weights_keep_theirs(
    base: Path,
) -> None:
    settings = adapters(batch=6)
    loaded = held(base, settings)
    assert size(loaded.model.parameters()) * 2 == size(load(base).model.parameters())
    runs = rollouts(loaded, 0, agents=ROLES)
    policies = initial_policies(settings, ROLES, loaded)
    (batch,) = step_batches(seal(runs, sealing_of(loaded)).records, settings)
    Learner(policies).step(batch)
    frozen = [tensor for tensor in loaded.model.parameters() if not tensor.requires_grad]
    assert {tensor.dtype for tensor in frozen} == {torch.bfloat16}
    # Adapters and their moments, of both policies.
    moments = [tensor for name, tensor in policies.tensors().items() if not name.endswith("step")]
    assert len(moments) == 3 * len(ROLES) * len(policies.network.trained())
    assert {tensor.dtype for tensor in moments} == {torch.float32}


def test_trained_weights_stay_in_float32(base: Path) -> None:
    settings = settings_of(precision="bfloat16")
    loaded = held(base, settings)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}


def gradients(base: Path, runs: list[Trajectory], settings: GrpoSettings) -> dict[str, Any]:
    """The gradient of one policy's adapter after one step, when the adapter has an effect: Adam's
    first moment is a tenth of the gradient."""
    loaded = held(base, settings)
    network = network_of(loaded, adapter=True, rank=settings.rank, begins_from=None, base="base")
    rng = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, tensor in network.trained():
            tensor.copy_(torch.randn(tensor.shape, generator=rng) * 0.1)
    policies = Policies(network, ["shared"], settings)
    (batch,) = step_batches(seal(runs, sealing_of(loaded)).records, settings)
    Learner(policies).step(batch)
    return {name: tensor for name, tensor in policies.tensors().items() if name.endswith("exp_avg")}


def test_an_adapter_s_gradients_are_close_to_those_in_float32(base: Path) -> None:
    runs = rollouts(load(base), 0, count=6)
    settings = settings_of(weights="lora", rank=4, batch=6)
    exact = gradients(base, runs, settings)
    low = gradients(base, runs, settings.model_copy(update={"precision": "bfloat16"}))
    assert exact.keys() == low.keys()
    for name, gradient in exact.items():
        near = torch.cosine_similarity(gradient.flatten(), low[name].flatten(), dim=0)
        assert float(near) > NEAR, name
        assert float(low[name].norm() / gradient.norm()) == pytest.approx(1.0, abs=0.05), name


def data_of(base: Path, store: Path) -> GrpoData:
    return data_in(store, load(base))


def without_time(report: Report) -> list[object]:
    return [
        (step.version, name, summary.model_copy(update={"seconds": 0.0}))
        for step in report.steps
        for name, summary in step.policies.items()
    ]


def test_a_stopped_training_resumes_as_if_uninterrupted(base: Path, tmp_path: Path) -> None:
    runs = rollouts(load(base), 0, count=6, agents=ROLES)
    asyncio.run(record(tmp_path / "store", runs, batch=1))
    settings, data = adapters(objective={"kl": 0.01}), data_of(base, tmp_path / "store")

    def stop(step: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            settings, data, held(base, settings), tmp_path / "stopped", checkpoint_every=1,
            watch=StepListener(checkpoint=stop),
        )  # fmt: skip
    resumed = train(settings, data, held(base, settings), tmp_path / "stopped")
    whole = train(settings, data, held(base, settings), tmp_path / "whole")
    assert len(whole.steps) > 2
    assert without_time(resumed) == without_time(whole)
    for role in ROLES:
        resumed_weights, reference_weights = (
            load_file(tmp_path / name / "policies" / role / "adapter_model.safetensors")
            for name in ("stopped", "whole")
        )
        assert resumed_weights.keys() == reference_weights.keys()
        assert all(
            torch.equal(resumed_weights[name], reference_weights[name]) for name in resumed_weights
        )


async def sampled(base: Path) -> list[Completion]:
    """Completions sampled by an engine in bfloat16."""
    engine = build_engine(
        ModelSettings(engine="torch", model=str(base), device="cpu", dtype="bfloat16")
    )
    await engine.start()
    try:
        completions: list[Completion] = []
        for number in range(4):
            request = GenerateRequest(
                id=f"bfloat16-{number}",
                messages=(Message(role="user", content=f"{number} apples and {number} pens"),),
                sampling=SamplingParams(temperature=1.0, seed=number, max_tokens=12, n=4),
            )
            completions += [
                completion
                async for completion in engine.submit(request)
                if isinstance(completion, Completion)
            ]
        return completions
    finally:
        await engine.close()


def test_a_bfloat16_engine_and_the_trainer_agree_on_log_probabilities(base: Path) -> None:
    completions = asyncio.run(sampled(base))
    members = tuple(
        Member(
            f"{number}",
            float(number % 2),
            (
                TokenSequence(
                    ids=(*completion.prompt_ids, *completion.output_ids),
                    learned=(
                        *[False] * len(completion.prompt_ids), *[True] * len(completion.output_ids),
                    ),
                    logprobs=(*[0.0] * len(completion.prompt_ids), *completion.logprobs),
                    temperature=1.0,
                    truncated=False,
                ),
            ),
        )
        for number, completion in enumerate(completions)
    )  # fmt: skip
    runs = rollouts(load(base), 0, count=1)
    policy = seal(runs, sealing_of(load(base))).records[0].policy
    group = Group(GroupKey("one", "solo", 0, "one"), policy, members)
    settings = adapters(share_prefixes=False)
    learner = Learner(initial_policies(settings, ["solo"], held(base, settings)))
    apart = [
        float((learner.logprobs(micro_batch) - micro_batch.behaviour).abs().max())
        for micro_batch in micro_batches_of(
            rows_of([group], settings), settings.micro_batch_tokens, learner.policies.network.device
        )
    ]
    assert max(apart) < APART

"""`bench gpu`: Qwen3-1.7B's configuration is the published one, a reduced model goes through the
loop, and deviations are reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from transformers import AutoModelForCausalLM, Qwen3Config

from loopline.bench.errors import UsageError
from loopline.bench.proofs.gpu import proof
from loopline.bench.proofs.gpu.model import PUBLISHED, Written
from loopline.bench.proofs.gpu.parity import Parity
from loopline.bench.proofs.gpu.proof import PROOF, GpuOptions, Loop, check, outcome_of
from loopline.bench.proofs.gpu.serving import LAST, ROLES, Answers, Swapped
from loopline.bench.proofs.gpu.training import Trained
from loopline.bench.proofs.gpu.vllm_side import Served, bandwidth_bound
from loopline.bench.proofs.harness import conduct
from loopline.testing.vllm_double import write_program
from loopline.trainers.core.memory import peak_reserved_mb
from loopline.trainers.grpo.report import PolicyStep
from loopline.workers.engines.protocol import Completion, EngineError
from loopline.workers.engines.vllm.managed import PYTHON_VARIABLE

pytestmark = pytest.mark.slow

SMALL = GpuOptions(
    layers=2, vocabulary=2_048, groups=2, candidates=2, prompt=12, max_tokens=8, steps=2, rank=4,
    micro_batch_tokens=512, threads=1, seed=1,
)  # fmt: skip
WHOLE = SMALL.model_copy(update={**PROOF.full, "rank": 16, "micro_batch_tokens": 4_096})
PER_LAYER = 50_336_000
EMBEDDING = 2_048
"""Parameters of a layer, and of a row of the embedding, which is also the output layer."""


def test_the_whole_model_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(Qwen3Config.from_dict(PUBLISHED))
    assert model.num_parameters() == 28 * PER_LAYER + (151_936 + 1) * EMBEDDING == 1_720_574_976
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.model.layers[0].self_attn.q_norm.weight.shape == (128,)


def found_by(options: GpuOptions, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    pytest.importorskip("peft", reason="needs make install")
    conduct(PROOF, options.model_copy(update={"as_json": True}))
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.timeout(300)
def test_a_reduced_model_is_sampled_trained_swapped_in_and_served(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = found_by(SMALL, capsys)
    assert figures["passed"]
    parameters = 2 * PER_LAYER + (2_048 + 1) * EMBEDDING
    assert figures["facts"]["parameters"] == parameters
    # Two bytes for each weight of the trainer's base.
    assert figures["facts"]["trainer_base_mb"] == pytest.approx(2 * parameters / 1e6, abs=0.1)
    measurements = figures["measurements"]
    rates = [
        measurement["value"]
        for key, measurement in measurements.items()
        if key.endswith("tokens/s")
    ]
    assert len(rates) == 3
    assert min(rates) > 0
    assert {f"effective_samples_{role}" for role in ROLES} <= set(measurements)
    apart = "|difference of log-probabilities|, nats"
    assert measurements[f"{apart} / engine to transformers / mean"]["value"] < 0.05
    assert measurements["adapter_difference"]["value"] < 0.1


@pytest.mark.timeout(300)
def test_a_vllm_server_samples_the_same_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(write_program(tmp_path)))
    figures = found_by(SMALL.model_copy(update={"vllm": True}), capsys)
    parts = "parts; memory is of each process, at its peak"
    rates = [
        figures["measurements"][f"{parts} / {subject} / tokens/s"]["value"]
        for subject in ("rollouts", "rollouts, a vLLM server")
    ]
    ratio = figures["measurements"]["vllm_vs_torch"]["value"]
    assert ratio == pytest.approx(rates[1] / rates[0], rel=1e-3)


@pytest.mark.timeout(300)
def test_the_other_figures_remain_if_the_vllm_server_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'ImportError: no kernels' >&2\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(program))
    pytest.importorskip("peft", reason="needs make install")
    with pytest.raises(EngineError, match="ImportError: no kernels"):
        conduct(PROOF, SMALL.model_copy(update={"vllm": True, "as_json": True}))
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not figures["complete"]
    parts = "parts; memory is of each process, at its peak"
    assert figures["measurements"][f"{parts} / rollouts / tokens/s"]["value"] > 0
    assert "vllm_vs_torch" not in figures["measurements"]


def test_the_bound_reads_the_weights_once_and_the_cache_of_each_row(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    row = completion("tool_agent", 1).model_copy(
        update={"prompt_ids": (1,) * 896, "output_ids": (1,) * 256}
    )
    answers = Answers(((row,) * 4,) * 16, 1.0)
    bound = bandwidth_bound(tmp_path, answers, "NVIDIA H100 80GB HBM3")
    assert bound is not None
    # 3.4 GB of weights, and 64 rows of 1,024 tokens of 0.115 MB, at 3,350 GB/s.
    assert bound == pytest.approx(64 * 3.35e12 / (3.44e9 + 64 * 1_024 * 114_688), rel=0.01)
    assert bandwidth_bound(tmp_path, answers, "CPU, 1 of 2 cores") is None
    loop = replace(found(), rollouts=answers, bound=bound, vllm=Served(answers, 1.0))
    shares = [
        figure.value for figure in loop.measurements() if figure.name.startswith("share of the")
    ]
    assert shares == [pytest.approx(100 * answers.tokens_per_second / bound)] * 2


def test_a_missing_vllm_is_reported_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "python"))
    with pytest.raises(UsageError, match=r"no vLLM at .*make vllm"):
        check(SMALL.model_copy(update={"vllm": True}))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.timeout(900)
def test_the_whole_model_goes_through_the_loop_on_a_gpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = found_by(WHOLE, capsys)
    assert figures["facts"]["parameters"] == 1_720_574_976
    assert figures["passed"]


def completion(adapter: str, version: int) -> Completion:
    return Completion.model_validate(
        {
            "text": "", "finish_reason": "length", "adapter": adapter, "adapter_version": version,
            "usage": {"prompt": 1, "completion": 1, "source": "engine"}, "output_ids": [1],
        }
    )  # fmt: skip


def step(effective_samples: float) -> PolicyStep:
    return PolicyStep(
        groups=1, zero_variance=0, reward=0.0, loss=0.0, gradient_norm=1.0, divergence=None,
        entropy=0.0, clipped=0.0, effective_samples=effective_samples, ratios=(1.0,) * 5,
        kl_to_sampler=0.0, ages={}, truncated=0.0, learned=1, tokens=1, seconds=1.0,
    )  # fmt: skip


def found(
    *,
    engine: float = 0.01,
    adapter: float = 0.01,
    samples: float = 1.0,
    in_flight: int = LAST - 1,
    completion_tokens: int = LAST,
) -> Loop:
    answers = Answers(tuple((completion(role, completion_tokens),) for role in ROLES), 1.0)
    steps = ({role: step(1.0) for role in ROLES} | {ROLES[0]: step(samples)},) * 2
    return Loop(
        device="", written=Written(1, 1.0), load_seconds=1.0, rollouts=answers,
        trained=Trained(1.0, 1, steps, 1.0),
        swapped=Swapped(1.0, frozenset({in_flight}), answers), engine_mb=1.0,
        parity=Parity([0.01], [engine], [0.01], [adapter], [1.0]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"engine": 0.1}, "engine_rounding"),
        ({"adapter": 0.9}, "adapter_difference"),
        ({"samples": 0.5}, f"effective_samples_{ROLES[0]}"),
    ],
)
def test_log_probabilities_too_far_apart_miss_their_bar(changed: dict[str, Any], name: str) -> None:
    assert outcome_of(SMALL, found()).passed
    assert [measurement.name for measurement in outcome_of(SMALL, found(**changed)).missed] == [
        name
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"in_flight": LAST}, "in flight did not end with the version that they began with"),
        ({"completion_tokens": LAST - 1}, "were not answered by the new versions"),
    ],
)
def test_an_incorrectly_served_adapter_is_reported(changed: dict[str, Any], words: str) -> None:
    (violation,) = outcome_of(SMALL, found(**changed)).violations
    assert words in violation.message


def test_the_peaks_of_reserved_memory_are_shown_beside_those_of_a_gpu_s_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reserved(device: torch.device) -> int:
        return 3_000_000

    monkeypatch.setattr(torch.cuda, "max_memory_reserved", reserved)
    peak = peak_reserved_mb(torch.device("cuda"))
    assert (peak, peak_reserved_mb(torch.device("cpu"))) == (3.0, None)
    loop = found()
    on_gpu = replace(loop, engine_reserved_mb=peak, trained=replace(loop.trained, reserved_mb=4.0))
    peaks = {
        figure.subject: figure.value
        for figure in on_gpu.measurements()
        if figure.name == "reserved"
    }
    assert peaks == {"trainer, a step of 2 roles": 4.0, "engine": 3.0}
    assert not any(figure.name == "reserved" for figure in loop.measurements())


def test_training_times_exclude_the_first_step() -> None:
    trained = found().trained
    assert trained.seconds == len(ROLES)
    assert trained.tokens_per_second == 1.0


def test_a_missing_package_is_reported_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(UsageError, match="in the checkout: pip install"):
        check(SMALL)


def test_a_violation_is_exit_code_1_after_the_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def take(*_: object) -> Loop:
        return found(completion_tokens=LAST - 1)

    monkeypatch.setattr(proof, "run_loop", take)
    with pytest.raises(typer.Exit) as ended:
        conduct(PROOF, SMALL.model_copy(update={"as_json": True}))
    assert ended.value.exit_code == 1
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["passed"], line["violations"]) == (False, {"swap": 1})

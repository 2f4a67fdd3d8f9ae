"""`bench gpu`: the order of its parts, and the figures that must agree."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from pydantic import Field

from loopline.bench.errors import BenchError, UsageError
from loopline.bench.proofs.fidelity.proof import quantiles
from loopline.bench.proofs.gpu.model import Written, write_model
from loopline.bench.proofs.gpu.parity import Parity, compare
from loopline.bench.proofs.gpu.serving import (
    LAST,
    ROLES,
    Answers,
    Swapped,
    Workload,
    ask,
    groups_of,
    swap,
    warm_up,
)
from loopline.bench.proofs.gpu.training import Trained, Training, train
from loopline.bench.proofs.gpu.vllm_side import Served, bandwidth_bound, sample
from loopline.bench.proofs.harness import FullOptions, Progress, Proof, require_engines
from loopline.bench.proofs.isolated_process import isolated_worker
from loopline.bench.proofs.outcome import Measurement, Outcome, Violation, measured
from loopline.trainers.core.memory import peak_memory_mb, peak_reserved_mb
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion
from loopline.workers.installation import install_hint

LAYERS, VOCABULARY = 28, 151_936
"""Layers and vocabulary of Qwen3-1.7B."""
MODEL = "model"
"""Folder of the model in the scratch folder."""
COMPARED = 16
"""Completions of each kind that transformers also computes."""
ROUNDING = 2.0
"""Largest allowed error of the engine, as a multiple of the distance between transformers in
bfloat16 and exact log-probabilities: the engine sums in another order, row by row in a batch."""
SAMPLES_LEFT = 95.0
"""Least share of effective samples in a first step, in per cent: trainer and engine then differ
only by rounding."""


class GpuOptions(FullOptions):
    """It has Qwen3-1.7B's configuration and random weights, in bfloat16: serve, sample, train an
    adapter for each of two roles with AT-GRPO, swap them in, serve. By default the model is reduced
    so that a CPU can run it; --full uses the whole model, which needs a GPU.

    Prints tokens per second and peak memory of the engine and of the trainer, on a GPU also what
    PyTorch has reserved. Fails unless the engine's log-probabilities are transformers' own, the
    trainer's are the engine's, each role is answered by its new adapter, and requests in flight
    finish with the adapter that they started with.
    """

    layers: int = Field(default=2, ge=1, le=28)
    """Layers; Qwen3-1.7B has 28."""
    vocabulary: int = Field(default=2_048, ge=2_048, le=151_936)
    """Embedding rows; Qwen3-1.7B has 151,936."""
    groups: int = Field(default=2, ge=1)
    """Groups of each role in a step."""
    candidates: int = Field(default=2, ge=2, le=64)
    """Samples of a group (K)."""
    prompt: int = Field(default=24, ge=1)
    """Words of a prompt."""
    max_tokens: int = Field(default=12, ge=1)
    """Tokens of a completion."""
    steps: int = Field(default=2, ge=2)
    """Training steps; the first is not timed."""
    rank: int = Field(default=16, ge=1)
    """Rank of the adapters."""
    micro_batch_tokens: int = Field(default=4_096, ge=64)
    """Tokens that go through the model at once; they determine the memory."""
    threads: int = Field(default=1, ge=1)
    """CPU threads, if there is no GPU."""
    vllm: bool = False
    """Sample the same groups on a vLLM server, too, and compare the two engines. The server takes
    60 % of a GPU's memory."""
    seed: int = 1
    """Seed of weights, prompts and rewards."""

    @property
    def workload(self) -> Workload:
        return Workload(self.groups, self.candidates, self.prompt, self.max_tokens, self.seed)


@dataclass(frozen=True)
class Loop:
    """Results of all parts."""

    device: str
    written: Written
    load_seconds: float
    rollouts: Answers
    trained: Trained
    swapped: Swapped
    engine_mb: float
    """Peak memory of the engine's process, in megabytes."""
    parity: Parity
    engine_reserved_mb: float | None = None
    """Peak of the GPU memory that the engine's process has reserved; None on a CPU."""
    bound: float | None = None
    """Most tokens per second that the card's memory bandwidth allows; None if it is unknown."""
    vllm: Served | None = None
    """The same rollouts on a vLLM server."""

    @property
    def violations(self) -> list[Violation]:
        """Answers that did not come from the right versions of the adapters."""
        wanted: set[tuple[str | None, int]] = {(role, LAST) for role in ROLES}
        violations: list[Violation] = []
        if self.swapped.in_flight != frozenset([LAST - 1]):
            violations.append(
                Violation(
                    "swap", "requests in flight did not end with the version that they began with"
                )
            )
        if set(self.swapped.served) != wanted:
            violations.append(
                Violation("swap", "requests after the swap were not answered by the new versions")
            )
        return violations

    def measurements(self) -> list[Measurement]:
        """Return speed and memory of every part, differences of log-probabilities, and the bars."""
        trained, swapped, parity = self.trained, self.swapped, self.parity
        part = partial(measured, group="parts; memory is of each process, at its peak")
        role = f"trainer, a step of {len(ROLES)} roles"
        figures = [
            part("tokens/s", self.rollouts.tokens_per_second, better="higher", subject="rollouts"),
            part("seconds", self.rollouts.seconds, better="lower", subject="rollouts"),
            part("tokens/s", trained.tokens_per_second, better="higher", subject=role),
            part("seconds", trained.seconds, better="lower", subject=role),
            part("peak memory", trained.peak_memory_mb, "MB", better="lower", subject=role),
            part(
                "tokens/s", swapped.answers.tokens_per_second, better="higher",
                subject="an adapter for each role",
            ),
            part(
                "seconds", swapped.answers.seconds, better="lower",
                subject="an adapter for each role",
            ),
            part("peak memory", self.engine_mb, "MB", better="lower", subject="engine"),
            part("seconds", self.load_seconds, better="lower", subject="load the engine"),
            part(
                "seconds", swapped.seconds, better="lower",
                subject="new adapters, requests in flight",
            ),
        ]  # fmt: skip
        for subject, reserved in ((role, trained.reserved_mb), ("engine", self.engine_reserved_mb)):
            if reserved is not None:
                figures.append(part("reserved", reserved, "MB", better="lower", subject=subject))
        rates = {"rollouts": self.rollouts}
        if self.vllm is not None:
            subject = "rollouts, a vLLM server"
            rates[subject] = self.vllm.answers
            figures += [
                part(
                    "tokens/s", self.vllm.answers.tokens_per_second, better="higher",
                    subject=subject,
                ),
                part("seconds", self.vllm.answers.seconds, better="lower", subject=subject),
            ]  # fmt: skip
            if self.vllm.memory_mb is not None:
                figures.append(part("peak memory", self.vllm.memory_mb, "MB", subject=subject))
            ratio = self.vllm.answers.tokens_per_second / self.rollouts.tokens_per_second
            figures.append(measured("vllm_vs_torch", ratio, "×"))
        if self.bound is not None:
            figures += [
                part(
                    "share of the bandwidth bound", answers.tokens_per_second / self.bound, "%",
                    scale=100, better="higher", subject=subject,
                )
                for subject, answers in rates.items()
            ]  # fmt: skip
        for name, values in vars(parity).items():
            distance = partial(
                measured, subject=name.replace("_", " "),
                group="|difference of log-probabilities|, nats",
            )  # fmt: skip
            figures.append(distance("tokens", len(values)))
            figures.append(distance("mean", mean(values), better="lower"))
            figures += [distance(key, value) for key, value in quantiles(values).items()]
        figures += [
            measured(
                "engine_rounding",
                mean(parity.engine_to_exact) / mean(parity.transformers_to_exact),
                "× transformers'", better="lower", bar=ROUNDING,
            ),
            measured(
                "adapter_difference", mean(parity.adapter) / mean(parity.no_adapter),
                "× without one", better="lower", bar=0.5,
            ),
        ]  # fmt: skip
        for name, step in trained.steps[0].items():
            figures.append(
                measured(
                    f"effective_samples_{name}", step.effective_samples, "%", scale=100,
                    better="higher", bar=SAMPLES_LEFT,
                )
            )  # fmt: skip
            figures.append(
                measured(f"kl_to_engine_{name}", step.kl_to_sampler, "nats", better="lower")
            )
        return figures


def check(options: GpuOptions) -> None:
    """Raises `UsageError` for missing requirements."""
    if find_spec("peft") is None:
        raise UsageError(f"peft is not installed; {install_hint('train')}")
    if options.vllm:
        require_engines("vllm")


def run(options: GpuOptions, progress: Progress) -> Outcome:
    """Run the model through the whole loop."""
    gpu = torch.cuda.is_available()
    whole = (options.layers, options.vocabulary) == (LAYERS, VOCABULARY)
    if gpu and not whole:
        progress.say("a small part of the model; --full runs the whole one on this GPU")
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as scratch:
        # The trainer has a separate process and memory, as next to a deployment.
        with isolated_worker(tasks=None) as trainer:
            try:
                loop = asyncio.run(run_loop(options, Path(scratch), trainer, progress))
            except BrokenProcessPool as error:
                raise BenchError(
                    "the trainer's process was killed, probably for lack of memory: give a smaller "
                    "--micro-batch-tokens, fewer --groups or fewer --layers"
                ) from error
        # A server that fails does not cost the minutes of these parts.
        progress.outcome = partial(outcome_of, options, loop)
        if options.vllm:
            progress.say("a vLLM server samples the same groups…")
            gc.collect()
            torch.cuda.empty_cache()
            with isolated_worker() as alone:
                work, model = options.workload, Path(scratch) / MODEL
                vllm = alone.submit(sample, work, model, options.threads).result()
            loop = replace(loop, vllm=vllm)
    return outcome_of(options, loop)


def outcome_of(options: GpuOptions, loop: Loop) -> Outcome:
    """Build the outcome from the results of all parts."""
    whole = (options.layers, options.vocabulary) == (LAYERS, VOCABULARY)
    cut = "" if whole else (
        f" cut to {options.layers} layers and {options.vocabulary:,} rows of embedding"
    )  # fmt: skip
    outcome = Outcome(
        about=f"Qwen3-1.7B's configuration{cut}, random weights, bfloat16: "
        f"{loop.written.parameters:,} parameters, {loop.written.megabytes:,.0f} MB; "
        f"{loop.device}. {len(ROLES)} × {options.groups} groups of {options.candidates}, prompts "
        f"of {options.prompt} words, {options.max_tokens} tokens, LoRA of rank {options.rank}.",
        measurements=loop.measurements(),
        facts={
            "device": loop.device,
            "parameters": loop.written.parameters,
            "weights_mb": loop.written.megabytes,
            "trainer_base_mb": loop.trained.base_mb,
            "adapter_parameters": loop.trained.trained_parameters,
        },
    )
    outcome.violate(loop.violations)
    return outcome


async def run_loop(
    options: GpuOptions, scratch: Path, trainer: Executor, progress: Progress
) -> Loop:
    """Serve, sample, train, swap, serve, compare."""
    loop, work, model = asyncio.get_running_loop(), options.workload, scratch / MODEL
    first, last = scratch / "first", scratch / "last"
    progress.say("random weights…")
    written = await loop.run_in_executor(
        trainer, write_model, model, options.layers, options.vocabulary, options.seed
    )
    engine = build_engine(work.settings(model, options.threads))
    began = time.perf_counter()
    await engine.start()
    load_seconds = time.perf_counter() - began
    try:
        progress.say("the engine samples groups…")
        await warm_up(engine, work)
        rollouts = await ask(engine, work.requests("rollout", adapters=False))
        progress.say("steps of AT-GRPO, an adapter for each role…")
        training = Training(
            base=model, first=first, last=last, groups=groups_of(rollouts, work),
            steps=options.steps, rank=options.rank, micro_batch_tokens=options.micro_batch_tokens,
            threads=options.threads, seed=options.seed,
        )  # fmt: skip
        trained = await loop.run_in_executor(trainer, train, training)
        progress.say("the engine serves the adapters, and newer ones…")
        swapped = await swap(engine, work, first, last)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        engine_mb, reserved_mb = peak_memory_mb(device), peak_reserved_mb(device)
    finally:
        await engine.close()
    progress.say("transformers reads the same…")
    parity = await loop.run_in_executor(
        trainer, compare, model, _sample_answers(rollouts), _sample_answers(swapped.answers),
        {role: last / role for role in ROLES},
    )  # fmt: skip
    return Loop(
        _name(device, options.threads), written, load_seconds, rollouts, trained, swapped,
        engine_mb, parity, reserved_mb,
        bandwidth_bound(model, rollouts, _name(device, options.threads)),
    )  # fmt: skip


def _name(device: torch.device, threads: int) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {threads} of {os.cpu_count()} cores"


def _sample_answers(answers: Answers) -> list[Completion]:
    """Return the first completion of each request, covering both roles."""
    return [completions[0] for completions in answers.completions[:COMPARED]]


def mean(differences: Sequence[float]) -> float:
    return sum(differences) / len(differences)


def _minutes(options: GpuOptions) -> float:
    """Expected minutes: one for the reduced model on a CPU, a few for the whole model on a GPU. The
    whole model takes hours on a CPU."""
    server = 3.0 * options.vllm
    if torch.cuda.is_available():
        return 5.0 + server
    tokens = options.groups * options.candidates * options.max_tokens
    return server + 0.8 + options.layers * tokens / 500


PROOF = Proof(
    name="gpu",
    title="Qwen3-1.7B's configuration through serving, training and swapping",
    options=GpuOptions,
    minutes=_minutes,
    run=run,
    check=check,
    full={
        "layers": LAYERS, "vocabulary": VOCABULARY, "groups": 8, "candidates": 4, "prompt": 256,
        "max_tokens": 256, "steps": 3,
    },
)  # fmt: skip

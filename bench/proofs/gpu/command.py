"""`bench gpu`: in which order, what is held against what, and the tables."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import typer
from rich.console import Console

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
    warm,
)
from loopline.bench.proofs.gpu.training import Trained, Training, train
from loopline.bench.proofs.isolated_process import alone_in_a_process
from loopline.runtime.terminal.tables import figures
from loopline.trainers.core.memory import peak_memory_mb
from loopline.trainers.errors import TrainingError
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, EngineError
from loopline.workers.installation import how_to_install

ON_A_CPU = 4
"""Layers that a CPU goes through in minutes."""
COMPARED = 16
"""Completions of each kind that transformers reads as well."""
ROUNDING = 2.0
"""Times as far from exact log-probabilities as transformers in bfloat16 is: the engine adds up in
another order, row by row in a batch."""
SAMPLES_LEFT = 0.95
"""Least share of effective samples in a first step, where trainer and engine differ by rounding
alone."""


@dataclass(frozen=True)
class Plan:
    """What to measure; the fields are the command's options."""

    layers: int
    vocabulary: int
    groups: int
    candidates: int
    prompt: int
    max_tokens: int
    steps: int
    rank: int
    piece_tokens: int
    threads: int
    seed: int

    @property
    def workload(self) -> Workload:
        return Workload(self.groups, self.candidates, self.prompt, self.max_tokens, self.seed)


@dataclass(frozen=True)
class Found:
    """Everything, in the order in which it came about."""

    device: str
    written: Written
    load_seconds: float
    rollouts: Answers
    trained: Trained
    swapped: Swapped
    engine_mb: float
    """Peak memory of the engine's process."""
    parity: Parity

    @property
    def failures(self) -> list[str]:
        """What is not as it must be."""
        parity, first = self.parity, self.trained.steps[0]
        wanted: set[tuple[str | None, int]] = {(role, LAST) for role in ROLES}
        said: list[str] = []
        if mean(parity.engine_to_exact) > ROUNDING * mean(parity.transformers_to_exact):
            said.append("the engine's log-probabilities are not those of transformers")
        if mean(parity.adapter) > mean(parity.no_adapter) / 2:
            said.append("adapters are not served as they were trained")
        said += [
            f"the trainer's log-probabilities of {role} are not the engine's"
            for role, step in first.items()
            if step.effective_samples < SAMPLES_LEFT
        ]
        if self.swapped.in_flight != frozenset([LAST - 1]):
            said.append("requests in flight did not end with the version that they began with")
        if set(self.swapped.served) != wanted:
            said.append("requests after the swap were not answered by the new versions")
        return said

    def as_json(self) -> dict[str, object]:
        """The last line."""
        first, swapped = self.trained.steps[0], self.swapped
        return {
            "device": self.device,
            "parameters": self.written.parameters,
            "weights_mb": self.written.megabytes,
            "engine": {
                "load_seconds": round(self.load_seconds, 2),
                "tokens_per_second": round(self.rollouts.tokens_per_second, 1),
                "adapters_tokens_per_second": round(swapped.answers.tokens_per_second, 1),
                "peak_memory_mb": self.engine_mb,
            },
            "trainer": {
                "base_mb": self.trained.base_mb,
                "adapter_parameters": self.trained.trained_parameters,
                "step_seconds": round(self.trained.seconds, 2),
                "tokens_per_second": round(self.trained.tokens_per_second, 1),
                "peak_memory_mb": self.trained.peak_memory_mb,
                "effective_samples": {
                    role: round(each.effective_samples, 5) for role, each in first.items()
                },
                "kl_to_engine": {role: each.behind for role, each in first.items()},
            },
            "swap_seconds": round(swapped.seconds, 3),
            "logprobs": {name: _distribution(each) for name, each in vars(self.parity).items()},
            "failures": self.failures,
        }


def measure(plan: Plan, *, as_json: bool) -> None:
    """Measure, print. Raises `BenchError` where something is not as it must be."""
    if find_spec("peft") is None:
        raise UsageError(f"peft is not installed; {how_to_install('train')}")
    progress = Console(stderr=True)
    if not torch.cuda.is_available() and plan.layers > ON_A_CPU:
        progress.print(
            f"there is no CUDA GPU here, and a CPU takes hours for {plan.layers} layers: "
            "--layers 2 --vocabulary 2048 takes a minute"
        )
    with (
        tempfile.TemporaryDirectory(prefix="bench-gpu-") as scratch,
        # The trainer has a process and memory of its own, as beside a deployment.
        alone_in_a_process(tasks=None) as beside,
    ):
        try:
            found = asyncio.run(_measure(plan, Path(scratch), beside, progress))
        except (EngineError, TrainingError) as error:
            raise BenchError(str(error)) from error
        except BrokenProcessPool as error:
            raise BenchError(
                "the trainer's process was killed, for want of memory most likely: give a smaller "
                "--piece-tokens, fewer --groups or fewer --layers"
            ) from error
    _show(plan, found, Console(width=None if sys.stdout.isatty() else 120))
    if as_json:
        typer.echo(json.dumps(found.as_json()))
    if found.failures:
        raise BenchError("; ".join(found.failures))


async def _measure(plan: Plan, scratch: Path, beside: Executor, progress: Console) -> Found:
    loop, work, model = asyncio.get_running_loop(), plan.workload, scratch / "model"
    first, last = scratch / "first", scratch / "last"
    progress.print("random weights…")
    written = await loop.run_in_executor(
        beside, write_model, model, plan.layers, plan.vocabulary, plan.seed
    )
    engine = build_engine(work.settings(model, plan.threads))
    began = time.perf_counter()
    await engine.start()
    load_seconds = time.perf_counter() - began
    try:
        progress.print("the engine samples groups…")
        await warm(engine, work)
        rollouts = await ask(engine, work.requests("rollout", adapters=False))
        progress.print("steps of AT-GRPO, an adapter for each role…")
        asked = Training(
            base=model, first=first, last=last, groups=groups_of(rollouts, work),
            steps=plan.steps, rank=plan.rank, piece_tokens=plan.piece_tokens,
            threads=plan.threads, seed=plan.seed,
        )  # fmt: skip
        trained = await loop.run_in_executor(beside, train, asked)
        progress.print("the engine serves the adapters, and newer ones…")
        swapped = await swap(engine, work, first, last)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        engine_mb = peak_memory_mb(device)
    finally:
        await engine.close()
    progress.print("transformers reads the same…")
    parity = await loop.run_in_executor(
        beside, compare, model, _some(rollouts), _some(swapped.answers),
        {role: last / role for role in ROLES},
    )  # fmt: skip
    return Found(
        _name(device, plan.threads), written, load_seconds, rollouts, trained, swapped, engine_mb,
        parity,
    )  # fmt: skip


def _name(device: torch.device, threads: int) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {threads} of {os.cpu_count()} cores"


def _some(answers: Answers) -> list[Completion]:
    """The first of each request's, both roles among them."""
    return [each[0] for each in answers.completions[:COMPARED]]


def mean(differences: Sequence[float]) -> float:
    return sum(differences) / len(differences)


def _distribution(differences: Sequence[float]) -> dict[str, float]:
    found = {"mean": mean(differences), **quantiles(differences)}
    return {name: float(f"{each:.3g}") for name, each in found.items()}


def _show(plan: Plan, found: Found, console: Console) -> None:
    whole = "" if plan.layers == 28 and plan.vocabulary == 151_936 else (
        f" cut to {plan.layers} layers and {plan.vocabulary:,} rows of embedding"
    )  # fmt: skip
    trained, swapped = found.trained, found.swapped
    console.print(
        f"\nQwen3-1.7B's configuration{whole}, random weights, bfloat16: "
        f"{found.written.parameters:,} parameters, {found.written.megabytes:,.0f} MB; "
        f"{found.device}. {len(ROLES)} × {plan.groups} groups of {plan.candidates}, prompts of "
        f"{plan.prompt} words, {plan.max_tokens} tokens."
    )
    table = figures(
        "", "tokens/s", "peak MB", "seconds", words=("",), title="peak memory is of each process"
    )
    engine_mb = f"{found.engine_mb:,.0f}"
    rows = (
        ("engine: load", "", "", found.load_seconds),
        ("engine: rollouts", found.rollouts.tokens_per_second, "", found.rollouts.seconds),
        (
            f"trainer: a step of {len(ROLES)} roles, LoRA of rank {plan.rank}",
            trained.tokens_per_second, f"{trained.peak_memory_mb:,.0f}",
            trained.seconds,
        ),
        ("engine: new adapters, requests in flight", "", "", swapped.seconds),
        (
            "engine: an adapter for each role", swapped.answers.tokens_per_second, engine_mb,
            swapped.answers.seconds,
        ),
    )  # fmt: skip
    for name, rate, memory, seconds in rows:
        table.add_row(name, f"{rate:,.0f}" if rate else "", memory, f"{seconds:,.2f}")
    console.print(table)
    difference = "|difference of log-probabilities|, nats"
    table = figures(
        difference, "tokens", "mean", "50%", "90%", "99%", "greatest", words=(difference,)
    )
    for name, each in vars(found.parity).items():
        shown = [f"{value:.1e}" for value in (mean(each), *quantiles(each).values())]
        table.add_row(name.replace("_", " "), f"{len(each):,}", *shown)
    console.print(table)
    for role, each in trained.steps[0].items():
        console.print(
            f"{role}: trainer to engine, KL {each.behind:.1e} nats per token, effective samples "
            f"{each.effective_samples:.2%} in the first step"
        )

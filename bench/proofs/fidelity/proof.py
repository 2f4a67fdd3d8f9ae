"""`bench fidelity`: the comparisons."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field

from loopline.bench.errors import UsageError
from loopline.bench.proofs.fidelity import torch_side
from loopline.bench.proofs.fidelity.reference import Reference, random_adapter
from loopline.bench.proofs.harness import Engines, FullOptions, Progress, Proof, require_engines
from loopline.bench.proofs.isolated_process import redirect_logs
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.bench.statistics import quantile
from loopline.workers.engines.local.model_files import local_folder
from loopline.workers.engines.protocol import EngineError

SHARES = (0.5, 0.9, 0.99, 1.0)
"""Quantiles of the differences to show; the last one is the greatest difference."""

NEAR = 1e-5
"""Difference in nats that counts as near. Float32 itself sometimes rounds by more; see
`torch_side.rounding_differences`."""


VLLM_NEAR = 1e-4
"""The bar: largest difference in nats of a vLLM server in float32."""


class FidelityOptions(FullOptions):
    """Token by token.

    torch: greedy and sampled at temperature 1; alone, batched, after cached beginnings, and with
    another adapter in each row. llama_cpp with the same weights as f32, q8_0 and q4_k_m: how often
    its most likely token is the same, and how much log-probabilities differ. In float32 every sum
    is rounded, in both alike; float64 shows the differences without that rounding. vllm: a vLLM
    server in float32, asked as torch is; the bar is 1e-4 for every token.
    """

    model: str = "micro:llm"
    """micro:llm, micro:slm, or a folder of safetensors."""
    prompts: int = Field(default=100, ge=1, le=100_000)
    """Random prompts."""
    seed: int = 7
    """Seed of the prompts, the draws and the adapters."""
    together: int = Field(default=16, ge=2, le=256)
    """Requests in flight for the batched comparisons."""
    only: Engines = "both"
    """Engine of ours to measure."""
    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of torch."""
    threads: int = Field(default=2, ge=1, le=256)
    """CPU threads of each engine."""


def check(options: FidelityOptions) -> None:
    """Raises `UsageError` for options that can't be compared here."""
    if options.dtype == "float64" and options.only != "torch":
        raise UsageError("--dtype float64: only torch computes in it; add --only torch")
    require_engines(options.only)
    try:
        folder = local_folder(options.model)
    except EngineError as error:
        raise UsageError(f"--model {options.model}: {error}") from error
    if not (folder / "config.json").is_file():
        raise UsageError(f"--model {options.model}: there is no folder with a config.json")


def run(options: FidelityOptions, progress: Progress) -> Outcome:
    """Compare each way of asking with a plain forward pass."""
    outcome = Outcome(
        about=f"{options.model}, {options.prompts} random prompts. |difference of "
        "log-probabilities| in nats, token by token, from a plain forward pass in "
        f"{options.dtype} unless a row states otherwise."
    )
    progress.outcome = lambda: outcome
    with tempfile.TemporaryDirectory(prefix="bench-fidelity-") as scratch:
        asyncio.run(_compare(options, Path(scratch), outcome, progress))
    return outcome


async def _compare(
    options: FidelityOptions, scratch: Path, outcome: Outcome, progress: Progress
) -> None:
    folder, figures = local_folder(options.model), outcome.measurements
    reference = Reference(folder, torch.float64 if options.dtype == "float64" else torch.float32)
    adapters = [
        random_adapter(reference, scratch / f"adapter-{number}", options.seed + number)
        for number in range(3)
    ]
    compare = partial(
        torch_side.compare, folder, reference, adapters, prompts=options.prompts,
        seed=options.seed, together=options.together, threads=options.threads,
        dtype="float64" if options.dtype == "float64" else "float32",
    )  # fmt: skip
    if options.only == "vllm":
        await _vllm(compare, figures, progress)
        return
    progress.say("the torch engine, as it decodes…")
    ways, alone = await compare()
    if options.only != "llama_cpp":
        group = f"torch, {options.dtype}, as decoded"
        for way, distances in ways.items():
            figures += differences(group, way, distances.all)
        if options.dtype == "float32":
            plain, engine = torch_side.rounding_differences(folder, reference, alone)
            figures += differences(group, "alone, to float64", engine.all)
            figures += differences(group, "the plain pass itself, to float64", plain.all)
        progress.say("the torch engine with plain_logprobs…")
        for way, distances in (await compare(plain=True))[0].items():
            figures += differences(f"torch, {options.dtype}, plain_logprobs", way, distances.all)
    if options.only != "torch":
        await _llama_cpp(options, scratch, reference, alone, figures, progress)


async def _vllm(
    compare: Callable[..., Awaitable[tuple[dict[str, torch_side.Differences], object]]],
    figures: list[Measurement],
    progress: Progress,
) -> None:
    redirect_logs()
    most = 0.0
    for how, plain in (("as decoded", False), ("plain_logprobs", True)):
        progress.say(f"a vLLM server, {how}…")
        ways, _ = await compare(engine_name="vllm", plain=plain)
        for way, distances in ways.items():
            figures += differences(f"vllm, float32, {how}", way, distances.all)
            most = max(most, *distances.all)
    figures.append(
        measured("vllm_greatest_difference", most, "nats", better="lower", bar=VLLM_NEAR)
    )


async def _llama_cpp(
    options: FidelityOptions,
    scratch: Path,
    reference: Reference,
    alone: Sequence[torch_side.Completion],
    figures: list[Measurement],
    progress: Progress,
) -> None:
    from loopline.bench.proofs.fidelity import llama_side
    from loopline.trainers.export.precision import Precision

    folder = local_folder(options.model)
    sequences = [[*done.prompt_ids, *done.output_ids] for done in alone]
    for precision in (Precision.F32, Precision.Q8_0, Precision.Q4_K_M):
        progress.say(f"llama_cpp, {precision}…")
        agreement = llama_side.compare(
            folder, scratch, precision, reference, sequences, threads=options.threads
        )
        group = "llama_cpp, the same tokens read by both"
        figures += differences(group, str(precision), agreement.differences)
        figures.append(
            measured(
                "same likeliest token", agreement.share, "%", scale=100, better="higher",
                subject=str(precision), group=group,
            )
        )  # fmt: skip
    same, positions = await llama_side.greedy(
        folder, scratch, alone, prompts=options.prompts, seed=options.seed,
        together=options.together, threads=options.threads,
    )  # fmt: skip
    # Each engine alone in f32, up to the first difference of each answer.
    figures.append(
        measured("llama_cpp_same_greedy", same / positions, "%", scale=100, better="higher")
    )


def differences(group: str, subject: str, values: Sequence[float]) -> list[Measurement]:
    """Measurements of the differences: their number, the number of near ones, and quantiles."""
    add = partial(measured, subject=subject, group=group)
    return [
        add("tokens", len(values)),
        add("within 1e-5", share_near(values), "%", scale=100, better="higher"),
        *(add(name, value, better="lower") for name, value in quantiles(values).items()),
    ]


def share_near(values: Sequence[float]) -> float:
    """Return the share of tokens that differ by at most `NEAR`."""
    return sum(value <= NEAR for value in values) / len(values)


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Quantiles by name: p50, p90, p99, max."""
    return {
        "max" if share == 1.0 else f"p{round(share * 100)}": quantile(values, share)
        for share in SHARES
    }


def _minutes(options: FidelityOptions) -> float:
    """Expected minutes with the micro models."""
    torch_passes = 2 if options.only != "llama_cpp" else 1
    llama = 0.0 if options.only == "torch" else 0.5
    return (20 + options.prompts * (0.75 * torch_passes + llama)) / 60


PROOF = Proof(
    name="fidelity",
    title="the engines' log-probabilities against a plain forward pass",
    options=FidelityOptions,
    minutes=_minutes,
    run=run,
    check=check,
    full={"prompts": 200},
)

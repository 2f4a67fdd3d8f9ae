"""`bench fidelity`: what is compared, and the tables."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import typer
from rich.console import Console

from loopline.bench.errors import UsageError
from loopline.bench.proofs.fidelity import torch_side
from loopline.bench.proofs.fidelity.reference import Reference, random_adapter
from loopline.bench.statistics import quantile
from loopline.runtime.terminal.tables import figures
from loopline.workers.engines.local.model_files import local_folder
from loopline.workers.engines.protocol import EngineError
from loopline.workers.installation import how_to_install

if TYPE_CHECKING:
    from loopline.bench.proofs.fidelity.llama_side import Agreement

SHARES = (0.5, 0.9, 0.99, 1.0)
"""Quantiles of the differences that are shown; the last one is the greatest difference."""

BAR = 1e-5
"""Nats. Float32 itself rounds by more than that now and then; see `torch_side.rounding`."""


@dataclass(frozen=True)
class Plan:
    """What to compare; the fields are the command's options."""

    model: str
    prompts: int
    seed: int
    together: int
    only: str
    threads: int
    dtype: str


@dataclass
class Found:
    """All differences."""

    dtype: str
    """Of the torch engine and of the plain forward pass."""
    torch: dict[str, torch_side.Differences] = field(
        default_factory=dict[str, torch_side.Differences]
    )
    torch_plain: dict[str, torch_side.Differences] = field(
        default_factory=dict[str, torch_side.Differences]
    )
    """With `plain_logprobs`."""
    llama: dict[str, Agreement] = field(default_factory=dict[str, "Agreement"])
    greedy: tuple[int, int] | None = None

    def as_json(self) -> dict[str, object]:
        """The last line."""
        result: dict[str, object] = {
            "dtype": self.dtype,
            "torch": _by_way(self.torch),
            "torch_plain_logprobs": _by_way(self.torch_plain),
            "llama_cpp": {
                precision: {"same_argmax": round(each.share, 5), **quantiles(each.differences)}
                for precision, each in self.llama.items()
            },
        }
        if self.greedy is not None:
            result["llama_cpp_same_greedy"] = round(self.greedy[0] / self.greedy[1], 5)
        return result


def _by_way(ways: dict[str, torch_side.Differences]) -> dict[str, dict[str, float]]:
    return {
        way: {
            "requests": each.requests,
            "within_1e-5": round(within(each.all), 5),
            **quantiles(each.all),
        }
        for way, each in ways.items()
    }


def measure(plan: Plan, *, as_json: bool) -> None:
    """Compare and print. Raises `BenchError`."""
    if plan.only not in ("both", "llama_cpp", "torch"):
        raise UsageError(f"--only {plan.only!r}: choose one of both, llama_cpp, torch")
    if plan.dtype not in ("float32", "float64"):
        raise UsageError(f"--dtype {plan.dtype!r}: choose one of float32, float64")
    if plan.dtype == "float64" and plan.only != "torch":
        raise UsageError("--dtype float64: llama_cpp has no such weights; add --only torch")
    if plan.only != "torch" and find_spec("llama_cpp") is None:
        raise UsageError(
            f"llama-cpp-python is not installed; {how_to_install('gguf')}; or --only torch"
        )
    try:
        folder = local_folder(plan.model)
    except EngineError as error:
        raise UsageError(f"--model {plan.model}: {error}") from error
    if not (folder / "config.json").is_file():
        raise UsageError(f"--model {plan.model}: there is no folder with a config.json")
    with tempfile.TemporaryDirectory(prefix="bench-fidelity-") as scratch:
        found = asyncio.run(_compare(plan, folder, Path(scratch)))
    _show(plan, found, Console())
    if as_json:
        typer.echo(json.dumps(found.as_json()))


async def _compare(plan: Plan, folder: Path, scratch: Path) -> Found:
    reference = Reference(folder, torch.float64 if plan.dtype == "float64" else torch.float32)
    adapters = [
        random_adapter(reference, scratch / f"adapter-{number}", plan.seed + number)
        for number in range(3)
    ]
    compare = partial(
        torch_side.compare, folder, reference, adapters, prompts=plan.prompts, seed=plan.seed,
        together=plan.together, threads=plan.threads,
        dtype="float64" if plan.dtype == "float64" else "float32",
    )  # fmt: skip
    ways, alone = await compare()
    found = Found(plan.dtype)
    if plan.only != "llama_cpp":
        found.torch = ways
        found.torch_plain, _ = await compare(plain=True)
    if plan.only != "llama_cpp" and plan.dtype == "float32":
        plain, engine = torch_side.rounding(folder, reference, alone)
        found.torch["alone, to float64"] = engine
        found.torch["the plain pass itself, to float64"] = plain
    if plan.only != "torch":
        from loopline.bench.proofs.fidelity import llama_side
        from loopline.trainers.export.precision import Precision

        sequences = [[*each.prompt_ids, *each.output_ids] for each in alone]
        for precision in (Precision.F32, Precision.Q8_0, Precision.Q4_K_M):
            found.llama[precision] = llama_side.compare(
                folder, scratch, precision, reference, sequences, threads=plan.threads
            )
        found.greedy = await llama_side.greedy(
            folder, scratch, alone, prompts=plan.prompts, seed=plan.seed,
            together=plan.together, threads=plan.threads,
        )  # fmt: skip
    return found


def _show(plan: Plan, found: Found, console: Console) -> None:
    console.print(
        f"\n{plan.model}, {plan.prompts} random prompts. |difference of log-probabilities| in nats,"
        f" token by token, to a plain forward pass in {plan.dtype} where nothing else is said."
    )
    headings = [*(f"{share:.0%}" for share in SHARES[:-1]), "greatest"]
    for how, ways in (("as decoded", found.torch), ("plain_logprobs", found.torch_plain)):
        if not ways:
            continue
        table = figures(
            "", "requests", "tokens", "within 1e-5", *headings, words=("",),
            title=f"torch, {plan.dtype}, {how}",
        )  # fmt: skip
        for way, each in ways.items():
            table.add_row(
                way, str(each.requests), str(len(each.all)), f"{within(each.all):.2%}",
                *_row(each.all),
            )  # fmt: skip
        console.print(table)
    if found.llama:
        table = figures(
            "", "tokens", "same likeliest token", *headings, words=("",),
            title="llama_cpp, the same tokens read by both",
        )  # fmt: skip
        for precision, each in found.llama.items():
            table.add_row(
                precision, str(len(each.differences)), f"{each.share:.3%}", *_row(each.differences)
            )
        console.print(table)
    if found.greedy is not None:
        same, positions = found.greedy
        console.print(
            f"greedy, each engine by itself, {plan.together} at a time (f32): {same} of "
            f"{positions} tokens are the same ({same / positions:.3%}), up to the first difference "
            "of each answer"
        )


def _row(differences: Sequence[float]) -> list[str]:
    return [f"{each:.1e}" for each in quantiles(differences).values()]


def within(differences: Sequence[float]) -> float:
    """The share of tokens that differ by less than the bar."""
    return sum(each <= BAR for each in differences) / len(differences)


def quantiles(differences: Sequence[float]) -> dict[str, float]:
    """By name: p50, p90, p99, max."""
    return {
        "max" if share == 1.0 else f"p{round(share * 100)}": quantile(differences, share)
        for share in SHARES
    }

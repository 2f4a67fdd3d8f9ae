"""`bench grpo-speed`: what is measured, in which order, and its tables."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console

from loopline.bench.errors import UsageError
from loopline.bench.proofs.grpo_speed import ours, trl_peer
from loopline.bench.proofs.grpo_speed.rollouts import Rollouts, in_process, through_the_bus
from loopline.bench.proofs.grpo_speed.workload import StepWork
from loopline.bench.proofs.isolated_process import alone_in_a_process
from loopline.bench.statistics import Spread, spread
from loopline.runtime.terminal.tables import figures
from loopline.trainers.core.network import base_folder
from loopline.trainers.errors import TrainingError
from loopline.workers.installation import how_to_install

BUS, IN_PROCESS = "through the bus", "in-process"
SHARED, PLAIN, TRL = "train grpo", "train grpo --no-share-prefixes", "trl's GRPOTrainer"
Rates = dict[str, list[float]]
"""By what was measured, tokens per second of each repeat."""


@dataclass(frozen=True)
class Plan:
    """What to measure; the fields are the command's options."""

    model: str
    runs: int
    candidates: int
    max_tokens: int
    groups: int
    prompt: int
    steps: int
    repeats: int
    only: str
    trl: bool
    seed: int

    @property
    def rollouts(self) -> Rollouts:
        return Rollouts(self.model, self.runs, self.candidates, self.max_tokens, self.seed)

    @property
    def ways(self) -> tuple[str, ...]:
        """How rollouts are played."""
        return () if self.only == "steps" else (BUS, IN_PROCESS)

    @property
    def trainers(self) -> tuple[str, ...]:
        """Whose steps are measured."""
        if self.only == "rollouts":
            return ()
        return (SHARED, PLAIN, TRL) if self.trl else (SHARED, PLAIN)


class _Told:
    """Says which measurement is in work, and what each one found."""

    def __init__(self, plan: Plan) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._repeats = plan.repeats
        self._total = plan.repeats * len((*plan.ways, *plan.trainers))
        self._begun = 0

    def measured(self, what: str, repeat: int, run: Callable[[], float]) -> float:
        """Tokens per second, as `run` finds them."""
        self._begun += 1
        self._console.print(
            f"{self._begun} of {self._total}: {what}, repeat {repeat + 1} of {self._repeats}… ",
            end="",
        )
        found = run()
        self._console.print(f"{found:,.0f} tokens/s")
        return found


def measure(plan: Plan, *, as_json: bool) -> None:
    """Measure, print. Raises `BenchError`."""
    if plan.only not in ("both", "rollouts", "steps"):
        raise UsageError(f"--only {plan.only!r}: choose one of both, rollouts, steps")
    try:
        base_folder(plan.model)
    except TrainingError as error:
        raise UsageError(f"--model: {error}") from error
    if plan.trl and plan.only != "rollouts" and find_spec("trl") is None:
        raise UsageError(f"trl is not installed; {how_to_install('peers')}; or --no-trl")
    told = _Told(plan)
    rollouts = _rollouts(plan, told)
    steps = _steps(plan, told)
    _show(plan, rollouts, steps, Console(width=None if sys.stdout.isatty() else 120))
    if as_json:
        typer.echo(json.dumps(found_in(plan, rollouts, steps)))


def found_in(plan: Plan, rollouts: Rates, steps: Rates) -> dict[str, object]:
    """Ratios and rates: medians with least and greatest."""
    found: dict[str, object] = {"plan": asdict(plan), "cores": os.cpu_count()}
    for name, rates, one, other in (
        ("bus_vs_in_process", rollouts, BUS, IN_PROCESS),
        ("grpo_vs_trl", steps, SHARED, TRL),
        ("grpo_plain_vs_trl", steps, PLAIN, TRL),
    ):
        if other in rates:
            three = [round(each, 3) for each in ratio(rates, one, other)]
            found |= {name: three[0], f"{name}_spread": three}
    found["tokens_per_second"] = {
        name: [round(each, 1) for each in spread(every)]
        for name, every in {**rollouts, **steps}.items()
    }
    return found


def ratio(rates: Rates, one: str, other: str) -> Spread:
    """Repeat by repeat."""
    return spread([a / b for a, b in zip(rates[one], rates[other], strict=True)])


def _rollouts(plan: Plan, told: _Told) -> Rates:
    found: Rates = {way: [] for way in plan.ways}
    measures = {BUS: _on_the_bus, IN_PROCESS: _in_process}
    for repeat in range(plan.repeats):
        # By turns, each from a start: neither is measured on a warmer machine.
        for way, rates in found.items():
            run = partial(measures[way], plan.rollouts, repeat)
            rates.append(told.measured(f"rollouts {way}", repeat, run))
    return found


def _on_the_bus(work: Rollouts, repeat: int) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-grpo-speed-") as folder:
        (made,) = asyncio.run(through_the_bus(work, [repeat], Path(folder)))
    return made.tokens_per_second


def _in_process(work: Rollouts, repeat: int) -> float:
    with alone_in_a_process() as alone:
        return alone.submit(_here, work, repeat).result()


def _here(work: Rollouts, repeat: int) -> float:
    import torch

    torch.set_num_threads(1)
    (made,) = asyncio.run(in_process(work, [repeat]))
    return made.tokens_per_second


def _steps(plan: Plan, told: _Told) -> Rates:
    measures: dict[str, Callable[[StepWork], float]] = {
        SHARED: partial(ours.measure, share_prefixes=True),
        PLAIN: partial(ours.measure, share_prefixes=False),
        TRL: trl_peer.measure,
    }
    found: Rates = {name: [] for name in plan.trainers}
    if not found:
        return found
    with alone_in_a_process() as alone:
        work = alone.submit(_work, plan).result()
        for repeat in range(plan.repeats):
            for name, rates in found.items():
                run = partial(_rate, alone, measures[name], work)
                rates.append(told.measured(f"steps of {name}", repeat, run))
    return found


def _rate(alone: Executor, measure: Callable[[StepWork], float], work: StepWork) -> float:
    return work.tokens / alone.submit(measure, work).result()


def _work(plan: Plan) -> StepWork:
    from loopline.trainers.core.network import load_base

    return StepWork(
        model=plan.model, groups=plan.groups, candidates=plan.candidates, prompt=plan.prompt,
        completion=plan.max_tokens, steps=plan.steps, seed=plan.seed,
        vocabulary=load_base(plan.model).vocabulary,
    )  # fmt: skip


def _show(plan: Plan, rollouts: Rates, steps: Rates, console: Console) -> None:
    console.print(
        f"\n{plan.model}, fp32, one thread, {os.cpu_count()} cores; medians over {plan.repeats} "
        "repeats (least–greatest)."
    )
    for title, rates, last in (
        (
            f"rollouts: {plan.runs} Plan-Path puzzles, K = {plan.candidates}, at most "
            f"{plan.max_tokens} tokens a completion; sampled tokens",
            rollouts, IN_PROCESS,
        ),
        (
            f"steps: one update by {plan.groups} groups of {plan.candidates}, prompts of up to "
            f"{plan.prompt} tokens and completions of up to {plan.max_tokens}; tokens of samples "
            "with their prompts",
            steps, TRL,
        ),
    ):  # fmt: skip
        if not rates:
            continue
        table = figures("", "tokens/s", f"to {last}", words=("",), title=title)
        for name in rates:
            told = ratio(rates, name, last).text(".2f") if last in rates else ""
            table.add_row(name, spread(rates[name]).text(",.0f"), told if name != last else "")
        console.print(table)

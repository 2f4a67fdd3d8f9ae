"""`bench grpo-speed`: the measurements, and their order."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.bench.errors import UsageError
from loopline.bench.proofs.grpo_speed import ours, trl_peer
from loopline.bench.proofs.grpo_speed.rollouts import Rollouts, play_in_process, play_on_bus
from loopline.bench.proofs.grpo_speed.workload import StepWork
from loopline.bench.proofs.harness import Options, Progress, Proof
from loopline.bench.proofs.isolated_process import isolated_worker
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.bench.statistics import spread
from loopline.trainers.core.network import base_folder
from loopline.trainers.errors import TrainingError
from loopline.workers.installation import install_hint

BUS, IN_PROCESS = "through the bus", "in-process"
SHARED, PLAIN, TRL = "train grpo", "train grpo --no-share-prefixes", "trl's GRPOTrainer"
TRL_BEST = "trl's GRPOTrainer at its best"
MIN_VS_TRL = 1.5
BARRED = ("grpo_vs_trl_best", "grpo_plain_vs_trl_best")
FEWEST_BARRED_REPEATS = 3
Rates = dict[str, list[float]]
"""Tokens per second of each repeat, by the measured subject."""


class GrpoSpeedOptions(Options):
    """Rollouts through the bus against the same engine in-process, a step against trl's.

    Rollouts: sampled tokens per second of a gpu worker, a worker per role, a recorder and Redis,
    each a process, against one process without a bus; Plan-Path puzzles, the same seeds, the engine
    on one thread. Steps: tokens per second of one update with the same groups, in fp32 on one
    thread, with shared prefixes (as in trainings) and without; each trainer first makes two
    unmeasured steps. trl is measured with as many tokens at once as ours, and with its fastest
    number.
    """

    model: str = "micro:llm"
    """Model of rollouts and steps: micro name, hub id or folder."""
    runs: int = Field(default=16, ge=1, le=10_000)
    """Puzzles of each repeat."""
    candidates: int = Field(default=8, ge=2, le=64)
    """Samples of a state (K)."""
    max_tokens: int = Field(default=32, ge=1, le=4_096)
    """Most tokens of a completion."""
    groups: int = Field(default=4, ge=1, le=10_000)
    """Groups of a step."""
    prompt: int = Field(default=192, ge=2)
    """Longest prompt of a step's groups."""
    steps: int = Field(default=2, ge=1)
    """Measured steps of each repeat."""
    repeats: int = Field(default=4, ge=1, le=100)
    """Interleaved repeats; the medians are reported."""
    only: Literal["both", "rollouts", "steps"] = "both"
    """The half to measure."""
    trl: bool = True
    """Measure trl's GRPOTrainer too."""
    seed: int = 1
    """Seed of puzzles, samples and batches."""

    @property
    def rollouts(self) -> Rollouts:
        return Rollouts(self.model, self.runs, self.candidates, self.max_tokens, self.seed)

    @property
    def ways(self) -> tuple[str, ...]:
        """The measured ways to play rollouts."""
        return () if self.only == "steps" else (BUS, IN_PROCESS)

    @property
    def trainers(self) -> tuple[str, ...]:
        """Trainers whose steps are measured."""
        if self.only == "rollouts":
            return ()
        return (SHARED, PLAIN, TRL, TRL_BEST) if self.trl else (SHARED, PLAIN)


def check(options: GrpoSpeedOptions) -> None:
    """Raises `UsageError` for options that can't be measured here."""
    try:
        base_folder(options.model)
    except TrainingError as error:
        raise UsageError(f"--model: {error}") from error
    if options.trl and options.only != "rollouts" and find_spec("trl") is None:
        raise UsageError(f"trl is not installed; {install_hint('peers')}; or --no-trl")


def measurements(rates: Rates) -> list[Measurement]:
    """Return tokens per second of each way and trainer, and the ratios repeat by repeat."""
    figures = [
        measured(
            "tokens/s", spread(values), better="higher", subject=name,
            group="rollouts" if name in (BUS, IN_PROCESS) else "steps",
        )
        for name, values in rates.items()
        if values
    ]  # fmt: skip
    for name, mine, other in (
        ("bus_vs_in_process", BUS, IN_PROCESS),
        ("grpo_vs_trl", SHARED, TRL),
        ("grpo_plain_vs_trl", PLAIN, TRL),
        ("grpo_vs_trl_best", SHARED, TRL_BEST),
        ("grpo_plain_vs_trl_best", PLAIN, TRL_BEST),
    ):
        pairs = zip(rates.get(mine, ()), rates.get(other, ()), strict=False)
        ratios = [a / b for a, b in pairs]
        if ratios:
            barred = name in BARRED and len(ratios) >= FEWEST_BARRED_REPEATS
            figures.append(
                measured(
                    name, spread(ratios), "×", better="higher", bar=MIN_VS_TRL if barred else None
                )
            )
    return figures


def run(options: GrpoSpeedOptions, progress: Progress) -> Outcome:
    """Measure rollouts, then steps."""
    rates: Rates = {name: [] for name in (*options.ways, *options.trainers)}

    def outcome() -> Outcome:
        return Outcome(about=_about(options), measurements=measurements(rates))

    progress.outcome = outcome
    counter = _Counter(progress, options.repeats, len(rates) * options.repeats)
    _rollouts(options, counter, rates)
    _steps(options, counter, rates)
    return outcome()


def _about(options: GrpoSpeedOptions) -> str:
    return (
        f"{options.model}, fp32, one thread, {os.cpu_count()} cores; medians over "
        f"{options.repeats} repeats (least–greatest). Rollouts: {options.runs} Plan-Path puzzles, "
        f"K = {options.candidates}, at most {options.max_tokens} tokens a completion; sampled "
        f"tokens. Steps: one update by {options.groups} groups of {options.candidates}, prompts of "
        f"up to {options.prompt} tokens and completions of up to {options.max_tokens}; tokens of "
        "samples with their prompts."
    )


class _Counter:
    """Progress: the current measurement, and the results of the finished ones."""

    def __init__(self, progress: Progress, repeats: int, total: int) -> None:
        self._progress, self._repeats, self._total = progress, repeats, total
        self._begun = 0

    def tried(self, what: str, run: Callable[[], float]) -> float:
        """Try a measurement that only helps to choose a setting; return its tokens per second."""
        self._progress.say(f"trial: {what}… ", end="")
        rate = run()
        self._progress.say(f"{rate:,.0f} tokens/s")
        return rate

    def measured(self, what: str, repeat: int, run: Callable[[], float]) -> float:
        """Measure a repeat; return its tokens per second."""
        self._begun += 1
        at = f"repeat {repeat + 1} of {self._repeats}"
        self._progress.say(f"{self._begun} of {self._total}: {what}, {at}… ", end="")
        rate = run()
        self._progress.say(f"{rate:,.0f} tokens/s")
        return rate


def _rollouts(options: GrpoSpeedOptions, counter: _Counter, rates: Rates) -> None:
    measures = {BUS: _measure_bus, IN_PROCESS: _measure_in_process}
    for repeat in range(options.repeats):
        # Alternating, each from a fresh start: neither is measured on a warmer machine.
        for way in options.ways:
            run = partial(measures[way], options.rollouts, repeat)
            rates[way].append(counter.measured(f"rollouts {way}", repeat, run))


def _measure_bus(work: Rollouts, repeat: int) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-grpo-speed-") as folder:
        (played,) = asyncio.run(play_on_bus(work, [repeat], Path(folder)))
    return played.tokens_per_second


def _measure_in_process(work: Rollouts, repeat: int) -> float:
    with isolated_worker() as alone:
        return alone.submit(_measure_here, work, repeat).result()


def _measure_here(work: Rollouts, repeat: int) -> float:
    import torch

    torch.set_num_threads(1)
    (played,) = asyncio.run(play_in_process(work, [repeat]))
    return played.tokens_per_second


def _steps(options: GrpoSpeedOptions, counter: _Counter, rates: Rates) -> None:
    measures: dict[str, Callable[[StepWork], float]] = {
        SHARED: partial(ours.measure, share_prefixes=True),
        PLAIN: partial(ours.measure, share_prefixes=False),
        TRL: trl_peer.measure,
    }
    if not options.trainers:
        return
    with isolated_worker() as alone:
        work = alone.submit(_work, options).result()
        if TRL_BEST in options.trainers:
            best = _fastest_of_trl(alone, work, counter)
            measures[TRL_BEST] = partial(trl_peer.measure, at_most=best)
        for repeat in range(options.repeats):
            for name in options.trainers:
                run = partial(_rate, alone, measures[name], work)
                rates[name].append(counter.measured(f"steps of {name}", repeat, run))


def _fastest_of_trl(alone: Executor, work: StepWork, counter: _Counter) -> int:
    """Return the number of tokens at once with which trl's step is fastest, each tried once."""
    rates = {
        at_most: counter.tried(
            f"steps of trl with {at_most:,} tokens at once",
            partial(_rate, alone, partial(trl_peer.measure, at_most=at_most), work),
        )
        for at_most in trl_peer.AT_ONCE
    }
    return max(rates, key=lambda at_most: rates[at_most])


def _rate(alone: Executor, measure: Callable[[StepWork], float], work: StepWork) -> float:
    return work.tokens / alone.submit(measure, work).result()


def _work(options: GrpoSpeedOptions) -> StepWork:
    from loopline.trainers.core.network import load_base

    return StepWork(
        model=options.model, groups=options.groups, candidates=options.candidates,
        prompt=options.prompt, completion=options.max_tokens, steps=options.steps,
        seed=options.seed, vocabulary=load_base(options.model).vocabulary,
    )  # fmt: skip


def _minutes(options: GrpoSpeedOptions) -> float:
    """Expected minutes with the micro-LLM: processes start for each measurement, then generate its
    tokens."""
    rollout = 12 + options.runs * options.candidates * options.max_tokens * 0.004
    step = 10 + options.steps * options.groups * options.candidates * 0.1
    tries = len(trl_peer.AT_ONCE) if TRL_BEST in options.trainers else 0
    steps = options.repeats * len(options.trainers) + tries
    return (options.repeats * len(options.ways) * rollout + steps * step) / 60


PROOF = Proof(
    name="grpo-speed",
    title="AT-GRPO's rollouts and training steps against peers",
    options=GrpoSpeedOptions,
    minutes=_minutes,
    run=run,
    check=check,
)

"""`bench training`: the measurements, their order, and the ratios that matter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.bench.errors import UsageError
from loopline.bench.proofs.harness import Options, Progress, Proof
from loopline.bench.proofs.isolated_process import isolated_worker
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.bench.proofs.training import ours, trl_peer
from loopline.bench.proofs.training.workload import Measured, Prepared, Workload, prepare
from loopline.bench.statistics import Spread, spread
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.settings import size
from loopline.workers.installation import install_hint

OURS = "ours"
TRAINERS = "supervised training"
_TRL = ("trl", "datasets")
MIN_VS_TRL = 1.5
FEWEST_BARRED_STEPS = 16
"""Steps that have rows of all lengths."""


class TrainingOptions(Options):
    """Tokens per second and memory.

    Same model, rows, precision, threads, optimizer and real tokens per step, on the CPU; only
    completions are learned. trl is measured without packing, and with each packing that works
    there.
    """

    size: str = "micro-0.8m"
    """Model size: micro-0.2m, micro-0.8m or micro-2m."""
    samples: int = Field(default=400, ge=8, le=100_000)
    """Instructions of the simulator; the rows are those of their planner."""
    batch: int = Field(default=48, ge=1)
    """Rows per step."""
    steps: int = Field(default=16, ge=1)
    """Measured steps of each repeat; every 8 of them have rows of all lengths."""
    repeats: int = Field(default=3, ge=1, le=100)
    """Interleaved repeats; the medians are reported."""
    threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of each trainer."""
    seed: int = 1
    """Seed of the instructions, the weights and the order."""
    only: Literal["both", "ours"] = "both"
    """Whether trl is measured too."""


@dataclass
class Runs:
    """Results of all repeats of every trainer."""

    repeats: dict[str, list[Measured]] = field(default_factory=dict[str, list[Measured]])
    packed: tuple[str, ...] = ()
    """Trainers that pack."""
    bar: float | None = None
    """Least ratio to each of the fastest other trainers; None without a bar."""

    def measurements(self) -> list[Measurement]:
        """Return every trainer's figures, and ratios of ours to the fastest other trainer that
        packs, and to the fastest that does not."""
        figures = [
            figure for name, runs in self.repeats.items() if runs for figure in _trainer(name, runs)
        ]
        for name, packed in (("sft_vs_trl_packed", True), ("sft_vs_trl", False)):
            other = self._fastest(packed=packed)
            if other is not None:
                figures.append(
                    measured(name, self._ratio(other), "×", better="higher", bar=self.bar)
                )
        return figures

    def fastest(self) -> dict[str, str]:
        """The fastest other trainer with which each ratio compares, by ratio."""
        trainers = {
            "sft_vs_trl_packed": self._fastest(packed=True),
            "sft_vs_trl": self._fastest(packed=False),
        }
        return {name: other for name, other in trainers.items() if other is not None}

    def _fastest(self, *, packed: bool) -> str | None:
        others = [
            name
            for name, runs in self.repeats.items()
            if runs and name != OURS and (name in self.packed) == packed
        ]
        return max(others, key=lambda name: _rate(self.repeats[name]).median, default=None)

    def _ratio(self, other: str) -> Spread:
        """Return the ratio of our real tokens per second to the other's, repeat by repeat."""
        pairs = zip(self.repeats[OURS], self.repeats[other], strict=False)
        return spread([a.tokens_per_second / b.tokens_per_second for a, b in pairs])


def _rate(runs: list[Measured]) -> Spread:
    return spread([run.tokens_per_second for run in runs])


def _trainer(name: str, runs: list[Measured]) -> list[Measurement]:
    """Return real tokens per second (without padding), and the counts of the last repeat."""
    last = runs[-1]
    add = partial(measured, subject=name, group=TRAINERS)
    memory = spread([run.peak_memory_mb for run in runs])
    return [
        add("tokens/s", _rate(runs), better="higher"),
        add("peak memory", memory, "MB", better="lower"),
        add("padding", last.padding_share, "%", scale=100),
        add("tokens per step", last.tokens / last.steps),
        add("tokens at once", (last.tokens + last.padding) / last.forwards),
    ]


def check(options: TrainingOptions) -> None:
    """Raises `UsageError` for options that can't be measured here."""
    try:
        size(options.size)
    except TrainingError as error:
        raise UsageError(f"--size: {error}") from error
    if options.only == "both" and any(find_spec(name) is None for name in _TRL):
        raise UsageError(f"trl is not installed; {install_hint('peers')}; or --only {OURS}")


def run(options: TrainingOptions, progress: Progress) -> Outcome:
    """Measure every trainer on the same rows."""
    runs = Runs(
        packed=tuple(name for name, form in trl_peer.FORMS.items() if form.packing),
        bar=MIN_VS_TRL if options.steps >= FEWEST_BARRED_STEPS else None,
    )
    with (
        tempfile.TemporaryDirectory(prefix="bench-training-") as scratch,
        # Peak memory is per process, too.
        isolated_worker() as alone,
    ):
        workload = Workload(
            folder=Path(scratch), size=options.size, batch=options.batch, steps=options.steps,
            threads=options.threads, seed=options.seed,
        )  # fmt: skip
        progress.say(f"rows of {options.samples:,} instructions, and a {options.size}…")
        rows = alone.submit(prepare, workload, options.samples).result()

        def outcome() -> Outcome:
            return Outcome(
                about=_about(options, rows),
                measurements=runs.measurements(),
                facts={"to": runs.fastest(), "rows": rows.rows, "mean_tokens": rows.mean},
            )

        progress.outcome = outcome
        _measure(options, workload, alone, runs, progress)
    return outcome()


def _about(options: TrainingOptions, rows: Prepared) -> str:
    forms = "; ".join(f"{name}: {form.about}" for name, form in trl_peer.FORMS.items())
    peers = f" {forms}." if options.only == "both" else ""
    return (
        f"{options.size}, {rows.precision}, {options.threads} of {os.cpu_count()} cores; "
        f"{rows.rows:,} rows of {rows.mean:.0f} tokens (longest {rows.longest:,}), "
        f"{rows.learned / rows.tokens:.1%} of them learned. Medians over the repeats "
        f"(least–greatest); padding is not a token. {OURS}: {ours.ABOUT}.{peers}"
    )


def _measure(
    options: TrainingOptions, workload: Workload, alone: Executor, runs: Runs, progress: Progress
) -> None:
    trainers: dict[str, Callable[[Workload], Measured]] = {OURS: ours.measure}
    if options.only == "both":
        for name, form in trl_peer.FORMS.items():
            trainers[name] = partial(trl_peer.measure, form=form)
    for repeat in range(options.repeats):
        for name, measure in trainers.items():
            progress.say(f"repeat {repeat + 1} of {options.repeats}: {name}…")
            runs.repeats.setdefault(name, []).append(alone.submit(measure, workload).result())


def _minutes(options: TrainingOptions) -> float:
    """Expected minutes: a process per repeat of each trainer, and its steps, including two for
    warm-up."""
    trainers = 1 if options.only == OURS else 1 + len(trl_peer.FORMS)
    scale = {"micro-0.2m": 0.4, "micro-2m": 2.2}.get(options.size, 1.0)
    steps = scale * options.batch / 48 * (options.steps + 2) * 1.5
    return (0.05 * options.samples + options.repeats * trainers * (12 + steps)) / 60


PROOF = Proof(
    name="training",
    title="supervised training against trl's SFTTrainer",
    options=TrainingOptions,
    minutes=_minutes,
    run=run,
    check=check,
)

"""`bench training`: what is measured, in which order."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console

from loopline.bench.errors import UsageError
from loopline.bench.proofs.isolated_process import alone_in_a_process
from loopline.bench.proofs.training import ours, report, trl_peer
from loopline.bench.proofs.training.figures import OURS, Report
from loopline.bench.proofs.training.workload import Measured, Workload, prepare
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.settings import size
from loopline.workers.installation import how_to_install

_TRL = ("trl", "datasets")


@dataclass(frozen=True)
class Plan:
    """What to measure; the fields are the command's options."""

    size: str
    samples: int
    batch: int
    steps: int
    repeats: int
    threads: int
    seed: int
    only: str


def measure(plan: Plan, *, as_json: bool) -> None:
    """Measure, print. Raises `BenchError`."""
    if plan.only not in ("both", OURS):
        raise UsageError(f"--only {plan.only!r}: choose one of both, {OURS}")
    try:
        size(plan.size)
    except TrainingError as error:
        raise UsageError(f"--size: {error}") from error
    if plan.only == "both" and any(find_spec(name) is None for name in _TRL):
        raise UsageError(f"trl is not installed; {how_to_install('peers')}; or --only {OURS}")
    with (
        tempfile.TemporaryDirectory(prefix="bench-training-") as scratch,
        # Peak memory is the process's, too.
        alone_in_a_process() as alone,
    ):
        workload = Workload(
            folder=Path(scratch),
            size=plan.size,
            batch=plan.batch,
            steps=plan.steps,
            threads=plan.threads,
            seed=plan.seed,
        )
        found = _measure(plan, workload, alone, Console(stderr=True))
    report.show(found, Console(width=None if sys.stdout.isatty() else 120))
    if as_json:
        typer.echo(json.dumps(found.as_json()))


def _measure(plan: Plan, workload: Workload, alone: Executor, progress: Console) -> Report:
    progress.print(f"rows of {plan.samples:,} instructions, and a {plan.size}…")
    found = Report(
        size=plan.size,
        prepared=alone.submit(prepare, workload, plan.samples).result(),
        machine=f"{plan.threads} of {os.cpu_count()} cores",
        packed=tuple(name for name, form in trl_peer.FORMS.items() if form.packing),
    )
    trainers: dict[str, Callable[[Workload], Measured]] = {OURS: ours.measure}
    found.about[OURS] = ours.ABOUT
    if plan.only == "both":
        for name, form in trl_peer.FORMS.items():
            trainers[name] = partial(trl_peer.measure, form=form)
            found.about[name] = form.about
    for repeat in range(plan.repeats):
        for name, run in trainers.items():
            progress.print(f"repeat {repeat + 1} of {plan.repeats}: {name}…")
            found.figures.setdefault(name, []).append(alone.submit(run, workload).result())
    return found

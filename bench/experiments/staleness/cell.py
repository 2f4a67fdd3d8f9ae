"""One training on samples of older versions.

`cells.schedule` decides which version plays and which learns. Apart from that and the correction,
all cells are the same: the same puzzles, the same number of updates and samples, each sample used
once.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from loopline.agents.environments.puzzle_splits import Split
from loopline.bench.experiments.harness import SETTINGS
from loopline.bench.experiments.staleness.cells import (
    RESULT,
    Cell,
    CellResult,
    StalenessSettings,
    read_result,
    schedule,
)
from loopline.trainers.core.interruption import deferred_interrupt
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.json_records import write_record
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.arms import arm, results
from loopline.trainers.grpo.arms.kinds import AT_GRPO, KINDS, WARM_START
from loopline.trainers.grpo.arms.models import MODEL
from loopline.trainers.grpo.arms.reinforced import Batch, ReinforcedSteps, grpo_settings
from loopline.trainers.grpo.learner import NotFinite
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.sampling import DEVICE, Sampler
from loopline.trainers.grpo.settings import SHARED
from loopline.trainers.grpo.vectorized_rollout import Prompter, evaluate
from loopline.workers.engines.local.adapter_base import weights_sha256


def run_job(output: Path, job: str, tell: Callable[[JobLine], None]) -> str:
    """Run one cell for `loopline.bench.experiments.worker`."""
    settings = StalenessSettings.model_validate_json((output / SETTINGS).read_bytes())
    result = work(Cell.model_validate_json(job), output, settings, tell)
    return f"{result.solved:,} of {len(result.outcomes):,} solved" if result else ""


def work(
    cell: Cell, output: Path, settings: StalenessSettings, tell: Callable[[JobLine], None]
) -> CellResult | None:
    """Train, measure, and write the result; None for a warm start, which has its own result. A
    training takes minutes and is determined by its settings, so an interrupted one starts over.
    Ctrl-C finishes the current update and raises KeyboardInterrupt.
    """
    if cell.age is None:
        arm.train_arm(results.Arm(kind=WARM_START, seed=cell.seed), output, settings.demo, tell)
        return None
    result = read_result(cell, output)
    return _train(cell, cell.age, output, settings, tell) if result is None else result


def _train(
    cell: Cell,
    age: int,
    output: Path,
    settings: StalenessSettings,
    tell: Callable[[JobLine], None],
) -> CellResult:
    began, demo, kind = time.process_time(), settings.demo, KINDS[AT_GRPO]
    base = Cell(seed=cell.seed).folder(output) / MODEL
    loaded = load_base(str(base), device=DEVICE)
    grpo = grpo_settings(demo, kind, weights_sha256(base), cell.seed, correction=cell.correction)
    policies = initial_policies(grpo, [SHARED], loaded)
    prompter, sampler = Prompter(loaded), Sampler(loaded.model, loaded.end_ids, padding=0)
    steps = ReinforcedSteps(demo, kind, cell.seed, policies, prompter, sampler)
    waiting: deque[Batch] = deque()
    tokens = update_count = 0
    curves: list[dict[str, float]] = []
    stopped = ""
    with deferred_interrupt() as interruption:
        for batches, version in schedule(settings.updates, age):
            waiting.extend(steps.play(number, version) for number in batches)
            try:
                facts = steps.learn(waiting.popleft(), version)
            except NotFinite as error:
                # The weights are those of the previous update; they are measured anyway.
                stopped = str(error)
                break
            update_count += 1
            tokens += facts.tokens
            if version >= age:
                curves.append(facts.curves)
            tell(
                JobLine(
                    event="training",
                    done=update_count,
                    total=settings.updates,
                    message=facts.message,
                )
            )
            if interruption.requested:
                raise KeyboardInterrupt
        tell(JobLine(event="playing", message=f"{demo.held_out:,} held-out puzzles"))
        policies.activate(SHARED)
        puzzles = demo.game.tables(Split.TEST, demo.test_seed, demo.held_out)
        played = evaluate(puzzles, prompter, sampler, demo.reinforced.limit)
        if interruption.requested:
            raise KeyboardInterrupt
    result = CellResult(
        cell=cell,
        outcomes=played.outcomes,
        effective_samples=_metric_values(curves, "effective sample size"),
        ages=_metric_values(curves, "age"),
        clipped=_mean(_metric_values(curves, "clipped share")),
        updates=update_count,
        stopped=stopped,
        tokens=tokens,
        cpu_seconds=round(time.process_time() - began, 1),
    )
    folder = cell.folder(output)
    folder.mkdir(parents=True, exist_ok=True)
    write_record(folder / RESULT, result)
    return result


def _metric_values(curves: list[dict[str, float]], name: str) -> tuple[float, ...]:
    """Values of a metric in the updates that had a group with a signal."""
    key = f"{SHARED}/{name}"
    return tuple(curve[key] for curve in curves if key in curve)


def _mean(values: tuple[float, ...]) -> float:
    return math.fsum(values) / len(values) if values else 0.0

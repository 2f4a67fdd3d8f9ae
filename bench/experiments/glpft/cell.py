"""The work of one cell: train its models, then let them play."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loopline.bench.datasets import Item
from loopline.bench.experiments.glpft.beginning import take_beginning
from loopline.bench.experiments.glpft.evaluation import engines, evaluate
from loopline.bench.experiments.glpft.grid import (
    Cell,
    Common,
    data_folder,
    items_of,
    training_folder,
)
from loopline.bench.experiments.harness import SETTINGS
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.data.datasets import DataSet, read
from loopline.trainers.glpft.pipeline import StageListener, claim, train
from loopline.trainers.glpft.settings import BATCH_MICRO, GlpftSettings
from loopline.trainers.glpft.stage_training import StageProgress
from loopline.trainers.glpft.stages import EVEN_SHARES, stages_of

CHECKPOINT_EVERY = 200
"""Steps between two checkpoints."""

Phase = Literal["training", "playing"]


@dataclass(frozen=True)
class Done:
    """Progress of a cell: tokens of its training, or runs."""

    phase: Phase
    done: int
    total: int
    message: str = ""


def run_job(output: Path, job: str, tell: Callable[[JobLine], None]) -> str:
    """Run one cell for `loopline.bench.experiments.worker`."""

    def at(done: Done) -> None:
        tell(JobLine(event=done.phase, done=done.done, total=done.total, message=done.message))

    items = items_of(Common.model_validate_json((output / SETTINGS).read_bytes()))
    cell = Cell.model_validate_json(job)
    data = read(data_folder(output))
    work(cell, cell.folder(output), data, items, at, cell.siblings(output))
    return ""


def settings_of(cell: Cell, data: DataSet) -> GlpftSettings:
    """Settings of a cell: all but size, method, compute and seed are those of `train glpft`."""
    return GlpftSettings(
        method=cell.method,
        weights="full",
        data_sha256=data.card.sha256,
        size=cell.budget.size,
        tokens=cell.budget.tokens,
        batch=BATCH_MICRO,
        seed=cell.seed,
    )


def work(
    cell: Cell,
    folder: Path,
    data: DataSet,
    items: Sequence[Item],
    tell: Callable[[Done], None],
    siblings: Sequence[Path] = (),
) -> None:
    """Run the unfinished parts; the common start of all methods is copied from the folders
    `siblings`, where one has it. Raises `TrainingError`s and `BenchError`s; Ctrl-C ends a training
    step, or the runs in progress, and raises KeyboardInterrupt."""
    folder.mkdir(parents=True, exist_ok=True)
    training, tokens = training_folder(folder), cell.budget.tokens
    before, begins = 0.0, dict[str, float]()
    settings = settings_of(cell, data)
    for stage in stages_of(cell.method, EVEN_SHARES, copying=settings.copying_share(tokens)):
        begins[stage.name] = before
        before += stage.share

    def trained(now: StageProgress) -> None:
        at = round(begins[now.stage] * tokens) + now.tokens
        message = f"{now.stage}  loss {now.loss:.3f}  {now.tokens_per_second:,.0f} tokens/s"
        tell(Done("training", min(at, tokens), tokens, message))

    tell(Done("training", 0, tokens))
    claim(settings, data, training)
    take_beginning(settings, training, map(training_folder, siblings))
    train(
        settings,
        data,
        training,
        checkpoint_every=CHECKPOINT_EVERY,
        watch=StageListener(progress=trained),
    )
    asyncio.run(_play(cell, folder, items, tell))


async def _play(
    cell: Cell, folder: Path, items: Sequence[Item], tell: Callable[[Done], None]
) -> None:
    async with engines(cell.method, training_folder(folder)) as pools:
        await evaluate(
            cell.method,
            pools,
            items,
            folder,
            lambda played: tell(Done("playing", played, len(items))),
        )

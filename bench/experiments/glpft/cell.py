"""The work of one cell: train its models, then play with them.

All methods of one size and seed have the same start, bit for bit: random weights, their tokenizer,
and the model that has learned to copy. One cell creates it, and the others copy it; its compute and
time are charged to each of them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loopline.bench.datasets import Item
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
from loopline.trainers.glpft.pipeline import CHECKPOINTS, INITIAL, StageListener, claim, train
from loopline.trainers.glpft.report import FACTS, read_facts
from loopline.trainers.glpft.settings import BATCH_MICRO, GlpftSettings
from loopline.trainers.glpft.stage_training import StageProgress
from loopline.trainers.glpft.stages import COPYING, EVEN_SHARES, stages_of
from loopline.workers.atomic_files import atomic_folder


def take_beginning(settings: GlpftSettings, training: Path, others: Iterable[Path]) -> None:
    """Copy the common start into a claimed folder, from the first of these trainings that has it.
    Existing content of the folder, including unfinished work, stays. Raises `UnreadableModel`,
    OSError."""
    if (training / CHECKPOINTS / COPYING).exists() or (training / COPYING).exists():
        return
    for sibling in others:
        facts = read_facts(sibling / COPYING)
        if facts is None or not _differ_only_by_method(facts.settings, settings):
            continue
        if not (training / INITIAL).exists():
            with atomic_folder(training / INITIAL) as part:
                shutil.copytree(sibling / INITIAL, part, dirs_exist_ok=True)
        new_facts = facts.model_copy(update={"settings": settings})
        with atomic_folder(training / COPYING) as part:
            shutil.copytree(sibling / COPYING, part, dirs_exist_ok=True)
            (part / FACTS).write_text(new_facts.model_dump_json(indent=1) + "\n")
        return


def _differ_only_by_method(first: GlpftSettings, second: GlpftSettings) -> bool:
    """Whether the trainings differ at most in their method."""
    return first == second.model_copy(update={"method": first.method})


CHECKPOINT_EVERY = 200
"""Steps between two checkpoints."""

Phase = Literal["training", "playing"]


@dataclass(frozen=True)
class Done:
    """Progress of a cell: tokens of its training, or number of runs."""

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
    """Return the settings of a cell: all except size, method, compute and seed are those of `train
    glpft`."""
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
    """Run the unfinished parts; the common start of all methods is copied from one of the folders
    `siblings`, if any has it. Raises `TrainingError`s and `BenchError`s; Ctrl-C ends a training
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

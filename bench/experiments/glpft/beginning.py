"""Common start of all methods of one size and seed, bit for bit: random weights, their tokenizer,
and the model that has learned to copy. One cell makes it, the others copy it; its compute and time
are charged to each of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from loopline.trainers.glpft.pipeline import CHECKPOINTS, INITIAL
from loopline.trainers.glpft.report import FACTS, read_facts
from loopline.trainers.glpft.settings import GlpftSettings
from loopline.trainers.glpft.stages import COPYING
from loopline.workers.atomic_files import atomic_folder


def take_beginning(settings: GlpftSettings, training: Path, others: Iterable[Path]) -> None:
    """Copy it into a claimed folder from the first of these trainings that has it. Existing content
    of the folder, also unfinished work, stays. Raises `UnreadableModel`, OSError."""
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
    """Whether the trainings differ at most by their method."""
    return first == second.model_copy(update={"method": first.method})

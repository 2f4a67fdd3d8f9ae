"""Lessons for a candidate of a stream: the stream's solved runs, both the team's and the big
model's, and the oracle's ways through instructions of the team's first training, so that the team
does not forget.

The number of different rehearsed instructions keeps a team from forgetting, not the number of
repetitions. So rehearsal uses many instructions, each about once, and the few lessons of new kinds
are varied in form until they have their share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from loopline.agents.records import Run
from loopline.agents.roles.umi.settings import options_of
from loopline.bench.errors import BenchError
from loopline.bench.improve.worlds.instructions import OLD_KIND
from loopline.trainers.data.datasets import DataSet, build
from loopline.trainers.data.forms import with_forms
from loopline.trainers.data.json_files import Reading
from loopline.trainers.data.sources import Source, from_recorded, from_worlds
from loopline.trainers.data.store import read_trajectories

_REHEARSED = "train"


def lessons_of(
    store: Path,
    runs: Collection[str],
    *,
    rehearsal: int,
    new_share: float,
    seed: int,
    swapped: bool = False,
) -> DataSet:
    """Build the data set from these recorded, solved runs and from `rehearsal` instructions of the
    training split, drawn with `seed`. Lessons of new kinds get enough forms to be about `new_share`
    of all. `swapped`: each run's steps are put under another run's instruction. Raises
    `UnreadableData`."""
    reading = read_trajectories(store, "umi")
    records = tuple(record for record in reading.records if record.run.id in runs)
    if not records:
        raise BenchError(f"none of the {len(runs):,} solved runs is in the store {store}")
    source = from_recorded(Reading(records, ()), require=_may_be_learned)
    source = _with_swapped_steps(source) if swapped else source
    new = frozenset(entry.run.id for entry in records if entry.run.tags.get("kind") != OLD_KIND)
    sources = [_with_forms(source, new, rehearsal, new_share, seed)]
    if rehearsal:
        sources.append(from_worlds(_REHEARSED, rehearsal, seed))
    return build(sources, options_of(records[0].run))


def _may_be_learned(run: Run) -> None:
    """Accept every run. The split is held out from all other training; here the stream chose the
    runs, and its measurements use none of them."""


def forms_of(new: int, others: int, new_share: float) -> int:
    """Return the number of forms with which `new` lessons, alongside `others`, are about
    `new_share` of all."""
    if not new:
        return 1
    return max(1, round(new_share / (1 - new_share) * others / new))


def _with_forms(
    source: Source, new: Collection[str], rehearsal: int, new_share: float, seed: int
) -> Source:
    lessons = [entry for entry in source.trajectories if entry.id in new]
    others = [entry for entry in source.trajectories if entry.id not in new]
    forms = forms_of(len(lessons), len(others) + rehearsal, new_share)
    return replace(source, trajectories=(*others, *with_forms(lessons, forms, seed)))


def _with_swapped_steps(source: Source) -> Source:
    steps = [trajectory.steps for trajectory in source.trajectories]
    swapped = tuple(
        replace(trajectory, steps=steps[at - 1])
        for at, trajectory in enumerate(source.trajectories)
    )
    return replace(source, trajectories=swapped)

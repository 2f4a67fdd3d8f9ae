"""State of a loop, which is on disk before the loop acts on it.

    OUTPUT/loop.json                       the settings, and an id of this training
    OUTPUT/rounds/0003/wave-1.plan.json    which runs play which puzzles; written before they start
    OUTPUT/rounds/0003/wave-1.runs.jsonl   their trajectories, until the round is trained
    OUTPUT/rounds/0003/look.plan.json      which runs evaluate its result on held-out tasks
    OUTPUT/rounds/0003/look.json           how many of these it solves
    OUTPUT/rounds/0003/served.json         version numbers under which its policies were published
    OUTPUT/rounds/0003/groups.json         every sealed group, and how it was used
    OUTPUT/published/<id>/0003/<policy>/   the adapters of the round (0000: the initial ones);
                                           the newest ones, and those that the bus still lists
    OUTPUT/learned-tokens/                 importance ratios, if they are kept
    OUTPUT/report.json, report.html        results of the finished loop

A file appears complete or not at all. Round 3 is trained when the checkpoint records step 3. Work
in its folder before that is repeated, with the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from loopline.agents.records import Record, Task, Trajectory
from loopline.trainers.core.json_records import damage_error, find_record, read_record, write_record
from loopline.trainers.core.output_folder import guard_disk_writes
from loopline.trainers.grpo.learnable import Worth
from loopline.trainers.grpo.loop.settings import Look, LoopSettings
from loopline.workers.atomic_files import write_atomic

Fate = Literal[Worth, "stale", "foreign", "frozen"]
"""Use of a group: its worth, or `stale`: sampled by a version that is too old, `foreign`: by
weights that this loop has not published, `frozen`: by a policy that does not learn in the round."""


class Claim(Record):
    """Mark of the training that a folder belongs to."""

    id: str
    """Id of this training: it makes the paths of published versions unique."""
    settings: LoopSettings


class PlannedRun(Record):
    """One run that is to be played."""

    id: str
    seed: int
    task: Task
    gold: str | None = None
    """The right answer, which is never sent over the bus; None if the task itself can be
    checked."""
    level: str | None = None
    """Level of the puzzle, if rounds play several."""


class RolloutBatch(Record):
    """Runs that are started together."""

    round: int
    number: int
    """Number of the wave, from 1. Waves after the first make up for groups without a signal."""
    puzzles: int
    """Number of puzzles, or of tasks of a file."""
    runs: tuple[PlannedRun, ...]
    shares: dict[str, float] = Field(default_factory=dict)
    """Planned share of the puzzles of each level, if rounds play several."""

    @property
    def levels(self) -> Counter[str]:
        """Puzzles by level; empty if rounds have no levels."""
        plays = len(self.runs) // max(self.puzzles, 1)
        return Counter(run.level for run in self.runs[:: max(plays, 1)] if run.level is not None)


class GroupRecord(Record):
    """A sealed group, and how it was used."""

    id: str
    key: str
    policy: str
    """Policy of the deployment."""
    version: int
    """Number of the policy's version in the deployment."""
    rewards: tuple[float, ...]
    origins: tuple[str, ...]
    """Run, turn, branch and candidate of each member."""
    fate: Fate


class SealedRound(Record):
    """All groups that were sealed in a round."""

    round: int
    runs: tuple[str, ...]
    groups: tuple[GroupRecord, ...]


class PublishedVersions(Record):
    """Version numbers under which a round's policies were published, the newest last: a bus that
    lost its data counts from 1 again."""

    versions: tuple[dict[str, int], ...] = ()


class RunDirectory:
    """The files of one loop. Methods that write raise `NotEnoughDisk`; earlier files stay
    unchanged."""

    def __init__(self, output: Path, training: str) -> None:
        self.output = output
        self.training = training

    def published(self, number: int) -> Path:
        """The folder of the policies that a round made."""
        return self.output / "published" / self.training / f"{number:04d}"

    def published_rounds(self) -> list[tuple[int, Path]]:
        """Rounds whose policies exist, with their folders."""
        folders = self.published(0).parent.glob("*")
        return sorted((int(folder.name), folder) for folder in folders if folder.name.isdigit())

    def round(self, number: int) -> Path:
        return self.output / "rounds" / f"{number:04d}"

    def waves(self, number: int) -> list[RolloutBatch]:
        """Waves that were planned for a round so far."""
        paths = sorted(self.round(number).glob("wave-*.plan.json"), key=_batch_number)
        return [read_record(path, RolloutBatch) for path in paths]

    def levels_played(self, number: int) -> Counter[str]:
        """Puzzles that are planned for a round so far, by level."""
        return sum((wave.levels for wave in self.waves(number)), Counter[str]())

    def plan(self, wave: RolloutBatch) -> None:
        path = self.round(wave.round) / f"wave-{wave.number}.plan.json"
        write_page(path, wave)

    def trajectories(self, wave: RolloutBatch) -> tuple[Trajectory, ...] | None:
        """Trajectories of all runs of a wave; None until all have arrived."""
        path = self._runs(wave)
        if not path.exists():
            return None
        try:
            # Split as bytes: a model's text may contain other line separators, such as U+2028.
            lines = path.read_bytes().splitlines()
            return tuple(Trajectory.model_validate_json(line) for line in lines)
        except ValidationError as error:
            raise damage_error(path, error) from error

    def keep(self, wave: RolloutBatch, trajectories: Sequence[Trajectory]) -> None:
        lines = "\n".join(trajectory.model_dump_json() for trajectory in trajectories)
        path = self._runs(wave)
        with guard_disk_writes(path):
            write_atomic(path, lines + "\n")

    def forget_trajectories(self, number: int) -> None:
        """Remove the trajectories of a trained round; the deployment's store has them."""
        for path in self.round(number).glob("wave-*.runs.jsonl"):
            path.unlink(missing_ok=True)

    def look_plan(self, number: int) -> RolloutBatch | None:
        """Plan of the runs that evaluate the version of a round; None if there is no plan yet."""
        return find_record(self.round(number) / "look.plan.json", RolloutBatch)

    def plan_look(self, batch: RolloutBatch) -> None:
        write_page(self.round(batch.round) / "look.plan.json", batch)

    def note_look(self, look: Look) -> None:
        write_page(self.round(look.round) / "look.json", look)

    def looks(self) -> list[Look]:
        """Evaluations of all versions so far, in order."""
        paths = sorted((self.output / "rounds").glob("*/look.json"))
        return [read_record(path, Look) for path in paths]

    def seal(self, sealed: SealedRound) -> None:
        write_page(self.round(sealed.round) / "groups.json", sealed)

    def sealed(self, number: int) -> SealedRound:
        return read_record(self.round(number) / "groups.json", SealedRound)

    def served(self, number: int) -> PublishedVersions:
        path = self.round(number) / "served.json"
        return find_record(path, PublishedVersions) or PublishedVersions()

    def note_served(self, number: int, versions: Mapping[str, int]) -> None:
        before = self.served(number)
        if before.versions[-1:] != (dict(versions),):
            now = PublishedVersions(versions=(*before.versions, dict(versions)))
            write_page(self.round(number) / "served.json", now)

    def rounds_by_version(self, last: int) -> dict[tuple[str, int], int]:
        """Round that made each (policy, number), up to round `last`."""
        return {
            (policy, version): number
            for number in range(last + 1)
            for versions in self.served(number).versions
            for policy, version in versions.items()
        }

    def _runs(self, wave: RolloutBatch) -> Path:
        return self.round(wave.round) / f"wave-{wave.number}.runs.jsonl"


def write_page(path: Path, page: BaseModel) -> None:
    """Write a page, complete or not at all. Raises `NotEnoughDisk`."""
    with guard_disk_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, page)


def _batch_number(path: Path) -> int:
    return int(path.name.removeprefix("wave-").split(".")[0])

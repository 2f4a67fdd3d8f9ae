"""Reads new records of a store incrementally, for a process that polls it."""

# pyarrow has no type stubs.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog
from pydantic import ValidationError

from loopline.agents.records import RECORDS_VERSION, Trajectory
from loopline.agents.rewards import Reward
from loopline.workers.store.files import Damaged, batches_since, parquet_files
from loopline.workers.store.rewards import (
    EntryOrder,
    PostedRewards,
    RecordedReward,
    first_of_each_id,
)

log = structlog.get_logger("loopline.workers.store")

RecordT = TypeVar("RecordT")


class RecentRuns(Generic[RecordT]):
    """The runs and rewards of a store from a given time on. Each file is read once, and only the
    necessary part of a run is kept in memory."""

    def __init__(
        self,
        store: Path,
        since: float,
        keep: Callable[[Trajectory], RecordT | None],
        workflow: str | None = None,
    ) -> None:
        """`keep` returns the part of a run to keep, or None. `workflow`: the only one to read."""
        self.since = since
        self._store = store
        self._keep = keep
        self._workflow = workflow
        self._files: dict[str, set[str]] = {"trajectories": set(), "rewards": set()}
        self._runs: dict[str, tuple[int, RecordT]] = {}
        self._rewards: dict[str, RecordedReward] = {}

    @property
    def runs(self) -> Mapping[str, RecordT]:
        """Runs by id; the newest generation of a replayed run."""
        return {run_id: record for run_id, (_, record) in self._runs.items()}

    @property
    def posted(self) -> PostedRewards:
        """The rewards, without duplicates."""
        return PostedRewards(first_of_each_id(self._rewards.values()))

    def read_new(self) -> None:
        """Read the files that were added since the last call. Unreadable data is logged, and left
        to `runtime store verify`."""
        columns = ("trajectory", "run_id", "generation", "workflow")
        for body, run_id, generation, workflow in self._new_rows(
            "trajectories", "ended", columns, self._workflow
        ):
            if self._workflow not in (None, workflow):
                continue
            try:
                record = self._keep(Trajectory.model_validate_json(body))
            except ValidationError as error:
                log.warning("a run is left out", run=run_id, error=str(error)[:200])
                continue
            before = self._runs.get(run_id)
            if record is not None and (before is None or generation >= before[0]):
                self._runs[run_id] = generation, record
        for body, shard, entry in self._new_rows("rewards", "at", ("reward", "shard", "entry")):
            try:
                reward = Reward.model_validate_json(body)
            except ValidationError as error:
                log.warning("a reward is left out", error=str(error)[:200])
                continue
            if reward.version == RECORDS_VERSION:
                recorded = RecordedReward(EntryOrder.of(entry, shard), reward)
                self._rewards[recorded.entry] = recorded

    def _new_rows(
        self, table: str, time_column: str, columns: Sequence[str], workflow: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        folder, done = self._store / table, self._files[table]
        # A compaction replaces files: forget those that are no longer in the folder.
        done &= {path.name for path in parquet_files(folder)}
        damaged: list[Damaged] = []
        for batch in batches_since(
            folder, columns, time_column, self.since, done, damaged, workflow
        ):
            values = [batch[name].to_pylist() for name in (*columns, time_column)]
            for *row, at in zip(*values, strict=True):
                if at >= self.since:
                    yield tuple(row)
        for error in damaged:
            log.error("a file is left out", file=str(error.path), error=error.why)

"""Ids of runs, on the disk before the bus hears of them: a process that was killed while it waited
for runs waits for the same ones the next time, instead of paying for others."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from loopline.runtime.append_log import AppendLog, Failure, read_log
from loopline.runtime.client.run_ids import new_run_id


class AdmittedRuns:
    """A file of run ids by what they are for: `{"for": …, "run": …}`, a line for each."""

    def __init__(self, path: Path, *, go_on: str, failure: Failure) -> None:
        """Read the file at `path`, if there is one. Raises a failure for one that is damaged, and
        later for one that can't be written; see `AppendLog`."""
        self._log = AppendLog(path, go_on=go_on, failure=failure)
        self._ids = {str(line["for"]): str(line["run"]) for _, line in read_log(path, failure)}

    def run_id(self, purpose: str) -> str:
        """Return the id of the run for `purpose`: of an earlier sitting, else a new one."""
        if purpose not in self._ids:
            run_id = new_run_id()
            self._log.append({"for": purpose, "run": run_id})
            self._ids[purpose] = run_id
        return self._ids[purpose]

    def __enter__(self) -> Self:
        self._log.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

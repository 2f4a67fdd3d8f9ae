"""Run ids, written to disk before the runs are submitted to the bus: a process that was killed
while it waited for runs waits for the same runs after its restart and doesn't pay for new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from loopline.runtime.append_log import AppendLog, Failure, read_log
from loopline.runtime.client.run_ids import new_run_id


class AdmittedRuns:
    """A file of run ids by purpose, one per line: `{"for": …, "run": …}`."""

    def __init__(self, path: Path, *, resume: str, failure: Failure) -> None:
        """Read the file at `path`, if it exists. Raises `failure` if the file is damaged, and later
        if it can't be written; see `AppendLog`."""
        self._log = AppendLog(path, resume=resume, failure=failure)
        self._ids = {str(line["for"]): str(line["run"]) for _, line in read_log(path, failure)}

    def run_id(self, purpose: str) -> str:
        """Return the id of the run for `purpose`: the one from an earlier session, or a new one."""
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

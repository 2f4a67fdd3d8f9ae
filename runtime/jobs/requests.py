"""Jobs that the queue accepts: commands of `bench` or `train` in a folder of the deployment.

Anyone who can write to Redis can queue a job. This must not allow them to run any program of the
machine or to work in any folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.agents.records import Record
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import InputError

_FROM_A_TERMINAL = ("--unsafe-exec", "--batched-bench")
"""Options that remove isolation, or name a program to run."""


class JobRequest(Record):
    """Request for a job: the command to run."""

    program: Literal["bench", "train"]
    argv: list[str] = Field(min_length=1, max_length=200)
    cwd: str
    """Working directory, to which relative paths in `argv` refer."""
    output: str = ""
    """Directory of the results; an existing benchmark in it is resumed."""


def require_allowed(request: JobRequest, state: StateDirectory) -> None:
    """Check a request. Raises `InputError` for a job outside the deployment's folders (the folder
    in which this process was started, and the state folder) or with a forbidden option."""
    folders = [folder.resolve() for folder in (Path.cwd(), state.path)]
    place = Path(request.cwd).resolve()
    if not any(_is_within(place, folder) for folder in folders):
        raise InputError(
            f"a job must run in a folder of the deployment ({', '.join(map(str, folders))}), and "
            f"{place} is not in one of them",
            hint="queue it from there, or run the command itself.",
        )
    for word in request.argv:
        if (option := word.partition("=")[0]) in _FROM_A_TERMINAL:
            raise InputError(
                f"a job may not have {option}", hint="run the command itself, in a terminal."
            )
        if option == "--redis-url":
            raise InputError(
                "a job may not have --redis-url: every reader of the queue would see its password",
                hint="leave it out: a job joins the bus of its deployment.",
            )


def _is_within(place: Path, folder: Path) -> bool:
    # The root folder doesn't count: every path is within it.
    return folder != Path(folder.anchor) and (place == folder or folder in place.parents)

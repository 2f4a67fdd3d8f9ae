"""Jobs that the queue accepts: commands of `bench` or `train`, in a folder of the deployment.

Anyone who can write to Redis can queue a job. It must not become a way to run any program of the
machine, or to work in any of its folders.
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
    """Directory that relative paths in `argv` start from."""
    output: str = ""
    """Directory of the results; a benchmark that exists there is resumed."""


def require_allowed(request: JobRequest, state: StateDirectory) -> None:
    """Check a request. Raises `InputError` for one that goes beyond the deployment's folders: the
    one that this process was started in, and that of its state."""
    folders = [folder.resolve() for folder in (Path.cwd(), state.path)]
    place = Path(request.cwd).resolve()
    if not any(_is_within(place, folder) for folder in folders):
        raise InputError(
            f"a job works in a folder of the deployment ({', '.join(map(str, folders))}), and "
            f"{place} is not one of them",
            hint="queue it from there, or run the command itself.",
        )
    for word in request.argv:
        if (option := word.partition("=")[0]) in _FROM_A_TERMINAL:
            raise InputError(
                f"a job may not have {option}", hint="run the command itself, in a terminal."
            )
        if option == "--redis-url":
            raise InputError(
                "a job may not have --redis-url: all who read the queue would see its password",
                hint="leave it out: a job joins the bus of its deployment.",
            )


def _is_within(place: Path, folder: Path) -> bool:
    # Everything is within the root folder, which belongs to nobody in particular.
    return folder != Path(folder.anchor) and (place == folder or folder in place.parents)

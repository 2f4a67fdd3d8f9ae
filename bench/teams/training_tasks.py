"""Training tasks for a team of two: the problems of `bench code` and `bench math`, from splits that
are not used for measuring. Only tests that a program has not seen are rewarded, see
`loopline.bench.teams.code_problems`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from loopline.agents.records import Task
from loopline.bench.datasets import Dataset, Item, Request
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.teams import code_problems, math_problems
from loopline.workers.atomic_files import write_atomic
from loopline.workers.judging.problems import ProblemFolder

TRAIN = "train"
WITH_TRAIN = ("gsm8k", "wordproblems", "mbpp", "mbpp_sanitized", "apps", "codecontests")
"""Data sets with a training split; their other splits, and all other data sets, are reserved for
measuring."""
_LOADERS = {
    **dict.fromkeys(code_problems.READERS, code_problems.load_for_training),
    **dict.fromkeys(math_problems.READERS, math_problems.load),
}


def load(request: Request) -> Dataset:
    """Return the requested problems. Raises UsageError, also for data reserved for measuring, and
    DataError for files that can't be read."""
    name, setting = request.choices["dataset"], request.choices["setting"]
    if name not in _LOADERS:
        raise UsageError(f"there is no data set {name!r} here; there are: {', '.join(_LOADERS)}")
    if name not in WITH_TRAIN:
        raise UsageError(
            f"{name} is a test set, reserved for measuring; data sets for training: "
            f"{', '.join(WITH_TRAIN)}"
        )
    if request.split != TRAIN:
        raise UsageError(
            f"--split {request.split}: only the split {TRAIN} of {name} is for training; the "
            "others are reserved for measuring"
        )
    if isinstance(setting, dict) and "team" in setting:
        raise UsageError("--setting team: the tasks are for both members of a team")
    return _LOADERS[str(name)](request)


def write(dataset: Dataset, path: Path, problems: Path) -> str:
    """Write the tasks to `path`, one JSON line each, and their hidden tests or answers to
    `problems`, the judge's folder. Returns the file's SHA-256. Raises OutputError."""
    if path.is_dir() or not path.parent.is_dir():
        why = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise OutputError(f"{path} {why}: give the file to write")
    tasks = [_task(item) for item in dataset.items]
    content = "".join(f"{task.model_dump_json()}\n" for task in tasks)
    folder = ProblemFolder(problems)
    try:
        # Problems are written first, so that the judge knows every task.
        for problem in dataset.problems:
            folder.add(problem)
        write_atomic(path, content)
    except OSError as error:
        raise OutputError(f"{error.filename or path} can't be written: {error.strerror}") from error
    return hashlib.sha256(content.encode()).hexdigest()


def _task(item: Item) -> Task:
    """Return the task in its form on the bus."""
    task = item.about["task"]
    assert isinstance(task, dict)
    return Task.model_validate({"prompt": item.question, **task})

"""Excludes recorded runs from training: those of tasks that are used for measurement, and those
whose prompts contained the tests that decide their reward."""

from __future__ import annotations

from pydantic import ValidationError

from loopline.agents.environments import api_worlds
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import split_of_task
from loopline.agents.errors import InvalidTask, PluginError
from loopline.agents.records import Task
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.data.samples import AnyRunFacts

HELD_OUT = "a task that is held out from training"
NOT_REBUILT = "the task cannot be rebuilt"
SHOWN = "a task that shows the tests it is judged by"
LOOK_TAG = "look"
"""Tag of a run that evaluates held-out tasks for a loop: the id of the loop."""
TRAIN = Split.TRAIN.value
_CODE = "code"
"""The benchmark whose problems are played as published, with tests in the prompt."""


def require_training(run: AnyRunFacts, split: str = TRAIN) -> None:
    """Raises `Unreadable` for a run whose task is of a held-out split (any but `train` and `split`,
    the additional split that a training was told to learn from), for a run of a benchmark that did
    not use its split `train`, and for any run of `bench code`, which rewards a program for tests
    that it could copy. For puzzles and the simulated worlds, the task itself records its split,
    regardless of who requested it; for other tasks only the benchmark's tags do."""
    _require_training_task(run.task, split)
    if LOOK_TAG in run.tags:
        raise Unreadable(HELD_OUT, f"a look of the loop {run.tags[LOOK_TAG]}")
    benchmark = run.tags.get("bench")
    if benchmark is None:
        return
    # Older runs, recorded before there was a tag for it, have their split in the name of most
    # items.
    split_name = run.tags.get("split") or run.tags.get("item", "")
    if TRAIN not in split_name.split("/"):
        raise Unreadable(
            HELD_OUT, f"of the benchmark {benchmark}: {split_name or 'of no known split'}"
        )
    if benchmark == _CODE:
        raise Unreadable(
            SHOWN,
            "of `bench code`: write the problems with `bench tasks`, which pays for hidden tests "
            "only, and roll them out with `train grpo loop --tasks`",
        )


def _require_training_task(task: Task, learned_in: str) -> None:
    """Raises `Unreadable` for a task that is marked as held out, or that its environment does not
    know."""
    try:
        split = _split(task)
    except (InvalidTask, PluginError, api_worlds.UnfitRecipe, ValidationError) as error:
        raise Unreadable(NOT_REBUILT, str(error)) from error
    if split is not None and split not in (TRAIN, learned_in):
        raise Unreadable(HELD_OUT, split)


def _split(task: Task) -> str | None:
    """Split that the task specifies; None if it specifies none."""
    if task.environment == api_worlds.ENVIRONMENT:
        return api_worlds.rebuild(task.instance).split.value
    puzzle = split_of_task(task)
    return None if puzzle is None else puzzle.value

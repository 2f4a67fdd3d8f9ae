"""Finds environments by name or by `package.module:OBJECT`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TypeGuard

from loopline.agents.environments.environment import AnyEnvironment, Environment
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.records import Task
from loopline.agents.registry import Registry, import_from_here, load_object

GROUP = "loopline.environments"

BUILT_IN = {
    "plan_path": "loopline.agents.environments.plan_path:PLAN_PATH",
    "sokoban": "loopline.agents.environments.sokoban:SOKOBAN",
    "sudoku": "loopline.agents.environments.sudoku:SUDOKU",
    "word_problems": "loopline.agents.environments.word_problem_team:WORD_PROBLEMS",
}
"""Import path of each object, by name. It is imported on first use."""
DEFAULT = "plan_path"
"""Environment that a command plays by default."""


def find(target: str) -> AnyEnvironment:
    """Return the environment with this name, or at `package.module:OBJECT`. Raises `UnknownName`
    that lists the available names, or `PluginError` if it can't be imported."""
    return _by_object(target) if ":" in target else environments.get(target)


def split_of_task(task: Task) -> Split | None:
    """Return the split of a puzzle by its content; None for a task without an environment, and for
    a puzzle that no generator creates. Raises `InvalidTask` and `PluginError`."""
    if ":" not in task.environment and task.environment not in environments.names():
        return None
    return find(task.environment).parse(task.instance).split


def _is_environment(item: object) -> TypeGuard[AnyEnvironment]:
    return isinstance(item, Environment)


environments: Registry[AnyEnvironment] = Registry("environment", GROUP, _is_environment, BUILT_IN)
"""All environments with a name."""


@cache
def _by_object(target: str) -> AnyEnvironment:
    import_from_here()
    return replace(load_object("environment", target, _is_environment), origin=target)

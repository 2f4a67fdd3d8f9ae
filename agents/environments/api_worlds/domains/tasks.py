"""A to-do list."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Day,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
)
from loopline.agents.environments.api_worlds.names import TASKS, WEEKDAYS
from loopline.agents.records import JsonObject


@dataclass
class Task:
    day: str
    done: bool = False


@dataclass(kw_only=True)
class Tasks(State):
    domain: ClassVar[str] = "tasks"

    tasks: dict[str, Task]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        days = [*rng.choices(WEEKDAYS[:3], k=6), *rng.choices(WEEKDAYS, k=4)]
        return cls(
            tasks={name: Task(day) for name, day in zip(rng.sample(TASKS, 10), days, strict=True)}
        )


@api("Open tasks of a day")
def list_tasks(tasks: Tasks, day: Day, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"task": name} for name, row in tasks.tasks.items() if row.day == day and not row.done
    ]
    return page_of("tasks", rows, page)


@api("Add a task for a day", changes=True)
def add_task(tasks: Tasks, task: Name, day: Day) -> JsonObject:
    if task in tasks.tasks:
        raise ApiError(f"there is already a task {task}")
    tasks.tasks[task] = Task(day)
    return {"added": task}


@api("Mark a task as done", changes=True)
def complete_task(tasks: Tasks, task: Name) -> JsonObject:
    row = find_row(tasks.tasks, task, "task")
    if row.done:
        raise ApiError(f"{task} is done already")
    row.done = True
    return {"done": task}


@api("Put a task off to another day", changes=True)
def postpone_task(tasks: Tasks, task: Name, day: Day) -> JsonObject:
    find_row(tasks.tasks, task, "task").day = day
    return {"day": day}


@api("Delete a task", changes=True)
def delete_task(tasks: Tasks, task: Name) -> JsonObject:
    find_row(tasks.tasks, task, "task")
    del tasks.tasks[task]
    return {"deleted": task}

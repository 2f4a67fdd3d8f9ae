"""Users' intents for their to-do list."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.tasks import Tasks
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    lookup,
    number_names,
    pages,
    plan,
    pluralized_count,
)
from loopline.agents.environments.api_worlds.intents.drawing import a_day, combine_draws, from_world
from loopline.agents.environments.api_worlds.names import TASKS, WEEKDAYS
from loopline.agents.environments.api_worlds.world import World

a_task = from_world("task", lambda world: world.state(Tasks).tasks)
no_task = from_world(
    "task", lambda world: [name for name in TASKS if name not in world.state(Tasks).tasks]
)
a_busy_day = from_world(
    "day", lambda world: sorted({row.day for row in world.state(Tasks).tasks.values()})
)


def a_delay(rng: random.Random, world: World) -> Slots:
    name, row = rng.choice([*world.state(Tasks).tasks.items()])
    return {"task": name, "day": rng.choice([day for day in WEEKDAYS if day != row.day])}


def count_tasks(slots: Slots) -> Program:
    day = slots["day"]
    rows = yield from pages(
        "list_tasks", "tasks", f"I need the tasks of {day}.", {"day": day},
        lambda rows, old: number_names((row["task"] for row in rows[old:]), old),
        lambda rows: f"So far {pluralized_count(len(rows), 'task')}.",
    )  # fmt: skip
    count_phrase = pluralized_count(len(rows), "task")
    return Answer(f"You have {count_phrase} on {day}.", (len(rows),), f"In all {count_phrase}.")


INTENTS = (
    plan("tasks.count", count_tasks, draw=a_busy_day),
    lookup("tasks.add", draw=combine_draws(no_task, a_day), trouble=combine_draws(a_task, a_day)),
    lookup("tasks.complete", draw=a_task, trouble=no_task),
    lookup("tasks.postpone", draw=a_delay, trouble=combine_draws(no_task, a_day)),
    lookup("tasks.delete", draw=a_task, trouble=no_task),
)

"""What users want of their to-do list."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.tasks import Tasks
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    counted,
    lookup,
    numbered,
    pages,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import a_day, both, from_world
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
        lambda rows, old: numbered((row["task"] for row in rows[old:]), old),
        lambda rows: f"So far {counted(len(rows), 'task')}.",
    )  # fmt: skip
    told = counted(len(rows), "task")
    return Answer(f"You have {told} on {day}.", (len(rows),), f"In all {told}.")


INTENTS = (
    plan("tasks.count", "list_tasks", count_tasks, """
        How many tasks do I have on {day}?
        How many tasks are open on {day}?
        Count my tasks for {day}.
        Tell me how many tasks are on my list for {day}.
        Find out how many things I have to do on {day}.
        What is the number of my tasks on {day}?
        {day}: how many tasks are there?
        Look at my to-do list and count the tasks of {day}.
        """, draw=a_busy_day),
    lookup("tasks.add", "add_task", "task day", "I add it for {day}.", "I added the task for {day}.", """
        Remind me to {task} on {day}.
        Add a task for {day}: {task}
        Put on my to-do list for {day}: {task}
        I have to {task} on {day}. Add it to my tasks.
        On {day} I must {task}. Note it on my to-do list.
        New task for {day}: {task}
        Note for {day} that I have to {task}.
        Make a task for {day}: {task}
        """, draw=both(no_task, a_day), trouble=both(a_task, a_day)),
    lookup("tasks.complete", "complete_task", "task", "I mark it as done.", "The task is done.", """
        Mark as done: {task}
        It is finished: {task}. Mark the task as done.
        The task is done: {task}
        Check off this task: {task}
        Complete the task to {task}.
        I have finished this task: {task}
        Done with this task: {task}
        Tick off the task to {task}.
        """, draw=a_task, trouble=no_task),
    lookup("tasks.postpone", "postpone_task", "task day", "I put it off to {day}.",
           "The task is now on {day}.", """
        Put off the task to {task} until {day}.
        Postpone this task to {day}: {task}
        Move this task to {day}: {task}
        I will {task} on {day}. Change the task.
        Change the day of this task to {day}: {task}
        I want to {task} on {day} instead. Move the task.
        Shift this task to {day}: {task}
        Not yet: {task}. Put the task off to {day}.
        """, draw=a_delay, trouble=both(no_task, a_day)),
    lookup("tasks.delete", "delete_task", "task", "I delete it.", "The task is deleted.", """
        Delete this task: {task}
        Remove this from my to-do list: {task}
        I do not have to {task} any more. Delete the task.
        Drop the task to {task}.
        Take this task off my list: {task}
        Forget the task to {task}.
        Strike this task off my list: {task}
        Somebody else will {task}. Delete my task.
        """, draw=a_task, trouble=no_task),
)  # fmt: skip

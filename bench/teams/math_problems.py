"""Problems of competition mathematics as questions to reasoner and tool user.

The gold answer stays in the bench and in the judge's folder; on the bus is the hash by which a
judge knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from agents.environments.math_team import (
    MathInstance,
    MathProblem,
    MathSetting,
)
from agents.environments.math_team import (
    MathQuestion as AskedQuestion,
)
from bench.datasets import Dataset, Item, Request, competition_math
from bench.datasets.competition_math import MathQuestion
from bench.errors import DataError, UsageError
from bench.teams import MATH
from bench.teams.choice import chosen, drawn, repeated, setting_of
from trainers.data.json_files import Reading
from workers.judging.problems import key_of

READERS: dict[str, Callable[[Path | None], Reading[MathQuestion]]] = {
    "aime24": partial(competition_math.aime, 2024),
    "aime25": partial(competition_math.aime, 2025),
    "olympiadbench": competition_math.olympiadbench,
}


def load(request: Request) -> Dataset:
    """The same problems for the same data set, number and seed. Raises UsageError, and DataError
    for a file that can't be read, also for a broken record: no score is of fewer problems than it
    says."""
    choice = chosen(request, list(READERS))
    setting = setting_of(MathSetting, choice)
    if request.split != "test":
        raise UsageError(f"--split: {choice.dataset} has no {request.split!r}; it has: test")
    reading = READERS[choice.dataset](request.data)
    if reading.skipped or not reading.records:
        first = reading.skipped[0] if reading.skipped else None
        why = f"{first.where}: {first.reason} ({first.detail})" if first else "there is no problem"
        raise DataError(f"{choice.dataset}: {why}")
    by_id = {each.id: each for each in reading.records}
    asked = [by_id[name] for name in drawn(list(by_id), request, choice)]
    problems = [_problem(each) for each in asked]
    items: list[Item] = []
    for problem in problems:
        items += repeated(_item(problem, setting), choice.attempts)
    return Dataset(
        name=MATH,
        split="test",
        items=tuple(items),
        available=len(by_id) * choice.attempts,
        source=choice.dataset,
        reference={
            "dataset": choice.dataset,
            "attempts": choice.attempts,
            "unsafe_exec": choice.unsafe_exec,
        },
        problems=tuple(problems),
    )


def _problem(read: MathQuestion) -> MathProblem:
    asked = read.question
    if read.unit:
        asked += f"\n\nThe answer is in {read.unit}; leave the unit away."
    return MathProblem(
        question=AskedQuestion(id=read.id, statement=asked),
        answer=read.answer,
        tolerance=read.tolerance,
    )


def _item(problem: MathProblem, setting: MathSetting) -> Item:
    instance = MathInstance(question=problem.question, judged_as=key_of(problem), setting=setting)
    task = instance.task
    return Item(
        id=f"{MATH}/{problem.question.id}",
        question=task.prompt,
        gold=problem.answer,
        about={
            "split": "test",
            "problem": problem.question.id,
            "task": {"environment": task.environment, "instance": task.instance},
        },
    )

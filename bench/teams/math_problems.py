"""Grade-school and competition mathematics as questions for a reasoner and a tool user.

The gold answer stays in the bench and in the judge's folder; the bus has only a hash, by which a
judge finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pydantic import ValidationError

from loopline.agents.environments.math_team import (
    MathInstance,
    MathProblem,
    MathSetting,
)
from loopline.agents.environments.math_team import (
    MathQuestion as AskedQuestion,
)
from loopline.bench.datasets import (
    Dataset,
    Item,
    Request,
    aime,
    best_constant,
    gsm8k,
    olympiadbench,
    wordproblems,
)
from loopline.bench.datasets.math_questions import MathQuestion
from loopline.bench.errors import DataError
from loopline.bench.teams.benchmark import team_benchmark
from loopline.bench.teams.choice import (
    by_id,
    draw_names,
    parse_choice,
    repeat_item,
    require_split,
    setting_of,
    source_files_note,
)
from loopline.bench.teams.problem_judge import MATH_CHECKERS, math_judge
from loopline.trainers.data.json_files import Reading
from loopline.workers.judging.problems import key_of

NAME = "math"


def load(request: Request) -> Dataset:
    """Return the same problems for the same data set, split, number and seed. Raises UsageError,
    and DataError for an unreadable file or a broken record, so that no score covers fewer problems
    than it claims."""
    choice = parse_choice(request, list(READERS))
    setting = setting_of(MathSetting, choice)
    reading = READERS[choice.dataset](request)
    records_by_id, skipped = by_id(reading)
    if skipped or not records_by_id:
        first = skipped[0] if skipped else None
        why = f"{first.where}: {first.reason} ({first.detail})" if first else "no problems found"
        raise DataError(f"{choice.dataset}: {why}")
    selected_records = [
        records_by_id[name] for name in draw_names(list(records_by_id), request, choice)
    ]
    problems = [_problem(entry) for entry in selected_records]
    items: list[Item] = []
    for entry, problem in zip(selected_records, problems, strict=True):
        item = _item(problem, entry.split or request.split, setting)
        items += repeat_item(item, choice.attempts)
    return Dataset(
        name=NAME,
        split=request.split,
        items=tuple(items),
        available=len(records_by_id) * choice.attempts,
        source=f"{choice.dataset}{source_files_note(reading.files)}",
        reference={
            "dataset": choice.dataset,
            "attempts": choice.attempts,
            "unsafe_exec": choice.unsafe_exec,
            **best_constant([entry.answer for entry in problems]),
        },
        problems=tuple(problems),
    )


def _problem(read: MathQuestion) -> MathProblem:
    """Build the team's problem. Raises DataError for an invalid one: too long a text, a tolerance
    of 0."""
    statement = read.question
    if read.unit:
        statement += f"\n\nThe answer is in {read.unit}; leave the unit away."
    try:
        return MathProblem(
            question=AskedQuestion(id=read.id, statement=statement),
            answer=read.answer,
            tolerance=read.tolerance,
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise DataError(f"{read.id}: {first['loc'][-1]}: {first['msg']}") from error


def _item(problem: MathProblem, split: str, setting: MathSetting) -> Item:
    instance = MathInstance(question=problem.question, judged_as=key_of(problem), setting=setting)
    task = instance.task
    return Item(
        id=f"{NAME}/{problem.question.id}",
        question=task.prompt,
        gold=problem.answer,
        about={
            "split": split,
            "problem": problem.question.id,
            "task": {"environment": task.environment, "instance": task.instance},
        },
    )


def _aime(year: int, request: Request) -> Reading[MathQuestion]:
    require_split(f"aime{year % 100}", request.split, ("test",))
    return aime.read(year, request.data)


def _olympiadbench(request: Request) -> Reading[MathQuestion]:
    require_split("olympiadbench", request.split, ("test",))
    return olympiadbench.load(request.data)


def _gsm8k(request: Request) -> Reading[MathQuestion]:
    require_split("gsm8k", request.split, gsm8k.SPLITS)
    read = gsm8k.load(replace(request, samples=None))
    return Reading(tuple(map(_question_from_item, read.items)), (), (read.source,))


def _wordproblems(request: Request) -> Reading[MathQuestion]:
    split = wordproblems.MIXED if request.split == "test" else request.split
    generated = wordproblems.load(replace(request, split=split))
    return Reading(tuple(map(_question_from_item, generated.items)), ())


def _question_from_item(item: Item) -> MathQuestion:
    """Return an item's question without the facts about the worked solution."""
    split = item.about.get("split")
    return MathQuestion(item.id, item.question, item.gold, split=str(split) if split else "")


READERS: dict[str, Callable[[Request], Reading[MathQuestion]]] = {
    "gsm8k": _gsm8k,
    "wordproblems": _wordproblems,
    "aime24": partial(_aime, 2024),
    "aime25": partial(_aime, 2025),
    "olympiadbench": _olympiadbench,
}
"""Data set → reader of a split's problems; generated data sets yield the requested number."""

BENCHMARK = team_benchmark(
    NAME,
    "Competition mathematics",
    load=load,
    judge=math_judge,
    checkers=MATH_CHECKERS,
    team=("reasoner", "tool_user"),
    about="a solution in words and a program's answer, held against each other",
    alone={"reasoner": "one solution, without a program"},
)

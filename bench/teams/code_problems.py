"""Programming problems as questions for a coder and a unit tester.

Items, manifests and the bus contain only a problem's question and a hash, by which a judge finds
the rest.

*For measuring*, problems are as published: all assertions of MBPP are shown, and the public tests
of CodeContests, and these count like all others. *For training*, tests shown as an example or in
the statement do not count: repeating them earns no reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from loopline.agents.environments.code import CodeProblem, CodeTest
from loopline.agents.environments.code.leakage import leaks_test
from loopline.agents.environments.code.team import CodeInstance, CodeSetting
from loopline.bench.datasets import (
    Dataset,
    Item,
    Request,
    apps,
    apps_selected,
    best_constant,
    code_contests,
    humaneval,
    livecodebench,
    mbpp,
    skipped_summary,
)
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
from loopline.bench.teams.constant_programs import solving_constant
from loopline.bench.teams.problem_judge import CODE_CHECKERS, code_judge
from loopline.trainers.data.json_files import Reading, Skipped
from loopline.workers.judging.problems import key_of

NAME = "code"
Reader = Callable[[str, Path | None], Reading[CodeProblem]]

_MBPP_SPLITS = {
    "prompt": range(1, 11),
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}
"""Task ids of each MBPP split, as in its paper and on its page (Austin et al. 2021)."""

_SELECTED = "selected"
"""Split of APPS selected by the authors of MapCoder."""


def load(request: Request) -> Dataset:
    """Return the problems for measuring: the same for the same data set, split, number and seed.
    Raises UsageError, and DataError for files that can't be read."""
    return _load(request, READERS)


def load_for_training(request: Request) -> Dataset:
    """Return the same problems for training, under the same ids. Raises the same errors as
    `load`."""
    return _load(
        request, {name: _without_leaked_tests(read) for name, read in _TO_TRAIN_ON.items()}
    )


def _load(request: Request, readers: Mapping[str, Reader]) -> Dataset:
    choice = parse_choice(request, list(readers))
    setting = setting_of(CodeSetting, choice)
    reading = readers[choice.dataset](request.split, request.data)
    if not reading.records:
        first = reading.skipped[0] if reading.skipped else None
        why = f" ({first.where}: {first.reason}: {first.detail})" if first else ""
        raise DataError(f"{choice.dataset} contains no problems{why}")
    problems_by_id, skipped = by_id(reading)
    selected_problems = [
        problems_by_id[name] for name in draw_names(list(problems_by_id), request, choice)
    ]
    items: list[Item] = []
    for problem in selected_problems:
        items += repeat_item(_item(problem, request.split, setting), choice.attempts)
    return Dataset(
        name=NAME,
        split=request.split,
        items=tuple(items),
        available=len(problems_by_id) * choice.attempts,
        source=f"{choice.dataset}, "
        f"{request.split}{source_files_note(reading.files)}{skipped_summary(skipped)}",
        reference={
            "dataset": choice.dataset,
            "attempts": choice.attempts,
            "unsafe_exec": choice.unsafe_exec,
            # The constant itself would reveal a hidden test.
            **best_constant(
                [solving_constant(item) for item in selected_problems],
                "a program that always prints the same text",
            ),
        },
        problems=tuple(selected_problems),
    )


def _item(problem: CodeProblem, split: str, setting: CodeSetting) -> Item:
    instance = CodeInstance(question=problem.question, judged_as=key_of(problem), setting=setting)
    task = instance.task
    return Item(
        id=f"{NAME}/{problem.id}",
        question=task.prompt,
        gold=f"passes {len(problem.tests):,} tests",
        about={
            "split": split,
            "problem": problem.id,
            "task": {"environment": task.environment, "instance": task.instance},
        },
    )


def _humaneval(split: str, data: Path | None) -> Reading[CodeProblem]:
    require_split("humaneval", split, ("test",))
    return humaneval.load(data)


def _without_leaked_tests(read: Reader) -> Reader:
    """Keep only the tests that neither an example nor the statement reveals. A problem without any
    such test is skipped: nothing can be learned from it."""

    def hidden(problem: CodeProblem) -> tuple[CodeTest, ...]:
        return tuple(
            test
            for test in problem.tests
            if test not in problem.examples and not leaks_test(problem.statement, test)
        )

    def unshown(split: str, data: Path | None) -> Reading[CodeProblem]:
        reading = read(split, data)
        records: list[CodeProblem] = []
        skipped = list(reading.skipped)
        for problem in reading.records:
            if rest := hidden(problem):
                records.append(problem.model_copy(update={"tests": rest}))
            else:
                skipped.append(Skipped(problem.id, "a problem that shows all of its tests"))
        return replace(reading, records=tuple(records), skipped=tuple(skipped))

    return unshown


def _mbpp(version: str, *, training: bool = False) -> Reader:
    def read(split: str, data: Path | None) -> Reading[CodeProblem]:
        require_split("mbpp", split, tuple(_MBPP_SPLITS))
        reading = mbpp.load(version, data, training=training)
        ids = _MBPP_SPLITS[split]
        records = tuple(
            record for record in reading.records if int(record.id.rpartition("/")[2]) in ids
        )
        return Reading(records, reading.skipped)

    return read


def _apps(split: str, data: Path | None) -> Reading[CodeProblem]:
    require_split("apps", split, (*apps.SPLITS, _SELECTED))
    if split == _SELECTED:
        return apps_selected.load(data)
    # The 150 replace the 5,000 if these are missing; the source states this.
    if split == "test" and not apps.is_available(split, data) and apps_selected.is_available(data):
        return apps_selected.load(data)
    return apps.load(split, data)


def _codecontests(split: str, data: Path | None) -> Reading[CodeProblem]:
    require_split("codecontests", split, code_contests.SPLITS)
    return code_contests.load(data, split)


def _livecodebench(split: str, data: Path | None) -> Reading[CodeProblem]:
    releases = {name.removesuffix(".jsonl"): name for name in livecodebench.FILES}
    require_split("livecodebench", split, tuple(releases))
    return livecodebench.load(data, releases[split])


READERS: dict[str, Reader] = {
    "humaneval": _humaneval,
    "mbpp": _mbpp("full"),
    "mbpp_sanitized": _mbpp("sanitized"),
    "apps": _apps,
    "codecontests": _codecontests,
    "livecodebench": _livecodebench,
}
"""Data set → reader of a split's problems. LiveCodeBench's splits are its files, one per
release."""
_TO_TRAIN_ON: dict[str, Reader] = {
    **READERS,
    "mbpp": _mbpp("full", training=True),
    "mbpp_sanitized": _mbpp("sanitized", training=True),
}

BENCHMARK = team_benchmark(
    NAME,
    "Programs",
    load=load,
    judge=code_judge,
    checkers=CODE_CHECKERS,
    team=("coder", "tester"),
    about="a coder's program and a unit tester's test, run against each other",
    alone={"coder": "one program, without a test"},
)

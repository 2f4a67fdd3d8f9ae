"""Questions in two parts, one to learn from and one held out, and the criterion for a solution. A
prompt search and a loop of rollouts ask them.

The parts have no question in common, and exclude questions by which a bench measures, unless a loop
is told to learn from another split: to adopt a prompt or a version is to choose a setting. The
held-out part of puzzles is their validation split; otherwise it is a quarter of a generator's
split, or of a file, by a hash of the question.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from loopline.agents.answers import parse_number, strip_latex
from loopline.agents.environments import api_worlds, word_problems
from loopline.agents.environments.api_worlds.splits import intents_of
from loopline.agents.environments.environment import AnyEnvironment
from loopline.agents.environments.puzzle_splits import Split, content_hash, split_of
from loopline.agents.errors import AgentError, InvalidOptions
from loopline.agents.records import MAX_PROMPT_CHARS, JsonObject, Outcome, Record, Task, Trajectory
from loopline.agents.roles.pair.episode import episode_of
from loopline.agents.roles.umi.transcript import calls_of
from loopline.trainers.data.data_files import PARQUET, read_records
from loopline.trainers.data.held_out import TRAIN
from loopline.trainers.data.task_files import JUDGED, TaskFile
from loopline.trainers.errors import TrainingError, UnreadableData

Dataset = Literal["worlds", "wordproblems"]

SPLITS: dict[Dataset, tuple[str, ...]] = {
    "worlds": tuple(api_worlds.Split),
    "wordproblems": tuple(word_problems.Split),
}
"""Splits of each generator. The shipped micro models have learned only from `train`; each other
split contains something that they have never met, such as a wording."""

DOMAINS: dict[Dataset, frozenset[str]] = {
    "worlds": frozenset(api.domain for api in api_worlds.APIS.values()),
    "wordproblems": frozenset(scheme.domain for scheme in word_problems.schemes()),
}
"""Domains of each generator's questions; an instruction that uses the APIs of several domains
belongs to all of them."""

CHECKERS = {
    "world": "the run's calls leave the world as the instruction wants it, and the answer has the "
    "facts that it asks for",
    "puzzle": "the run's actions, carried out again on the instance, solve it",
    "judge": "the run ended as solved: the deployment's judge, who alone knows hidden tests and "
    "right answers, found right what the team handed in",
    "answer": "the run's answer is the same number as the right one, or the same text",
}

MAX_LINE = 4 * MAX_PROMPT_CHARS


class Question(Record):
    """One question. The right answer stays in this process: it is never sent over the bus."""

    id: str
    task: Task
    gold: str | None = None
    """The right answer, if the checker is `answer`."""


@dataclass(frozen=True)
class Questions:
    """The two parts of a search."""

    source: str
    checker: str
    """A key of `CHECKERS`."""
    train: tuple[Question, ...]
    held_out: tuple[Question, ...]

    @property
    def sha256(self) -> str:
        """SHA-256 of all questions: a search that resumes must ask the same ones."""
        hashed = hashlib.sha256()
        for part in (self.train, self.held_out):
            for question in part:
                hashed.update(question.model_dump_json().encode() + b"\n")
            hashed.update(b"\n")
        return hashed.hexdigest()


def fault(question: Question, trajectory: Trajectory) -> str:
    """The fault of a run; empty if it solved the question.

    The run's own report of success does not count, nor does the task in its record. Only for code
    and mathematics does the run's verdict count, since only the deployment's judge knows the right
    answer.
    """
    if question.gold is not None:
        return _answer_fault(question.gold, trajectory)
    if question.task.environment in JUDGED:
        if trajectory.run.task != question.task:
            return "the run played another task than it was asked"
        return "" if trajectory.outcome is Outcome.SOLVED else _ending_fault(trajectory)
    if question.task.environment == api_worlds.ENVIRONMENT:
        if trajectory.outcome not in (Outcome.ANSWERED, Outcome.GAVE_UP):
            return _ending_fault(trajectory)
        answer = trajectory.answer if trajectory.outcome is Outcome.ANSWERED else None
        instance = api_worlds.rebuild(question.task.instance)
        return instance.verify(answer, calls_of(trajectory.steps)).reason
    acted = [step for step in trajectory.steps if step.decision.kind == "acted"]
    try:
        run = trajectory.run.model_copy(update={"task": question.task})
        wrong = episode_of(run, acted).verify().reason
    except (AgentError, ValueError) as error:
        return str(error)
    played = not wrong or trajectory.outcome is Outcome.FAILED
    return wrong if played else _ending_fault(trajectory)


def _answer_fault(gold: str, trajectory: Trajectory) -> str:
    if trajectory.outcome is not Outcome.ANSWERED or trajectory.answer is None:
        return _ending_fault(trajectory)
    wanted, answer_number = parse_number(gold), parse_number(trajectory.answer)
    if wanted is None:
        same = strip_latex(trajectory.answer).casefold() == strip_latex(gold).casefold()
    else:
        same = answer_number is not None and answer_number.value == wanted.value
    return "" if same else f"the answer is {trajectory.answer[:200]!r}, right is {gold[:200]!r}"


def _ending_fault(trajectory: Trajectory) -> str:
    return f"the run ended as {trajectory.outcome}: {(trajectory.reason or 'no reason')[:300]}"


def generate_questions(
    dataset: Dataset,
    seed: int,
    train: int,
    held_out: int,
    split: str = TRAIN,
    domains: Collection[str] = (),
) -> Questions:
    """Both parts of a split: instructions of the API simulator, or word problems. The split is the
    training split, which no bench measures by, unless another one of `SPLITS` is given; with
    `domains`, only questions about these of `DOMAINS`."""
    drawn = _generated(dataset, seed, split, domains)
    parts: dict[bool, dict[str, Question]] = {False: {}, True: {}}
    wanted = {False: train, True: held_out}
    while any(len(parts[side]) < wanted[side] for side in parts):
        question = next(drawn)
        side = _is_held_out(question.task.prompt)
        if len(parts[side]) < wanted[side]:
            parts[side].setdefault(question.id, question)
    return Questions(
        f"{dataset}, {split} split in two parts, generated from seed {seed}"
        + (f", about {', '.join(sorted(domains))}" if domains else ""),
        "world" if dataset == "worlds" else "answer",
        tuple(parts[False].values()),
        tuple(parts[True].values()),
    )


def training_questions(
    dataset: Dataset, seed: int, split: str = TRAIN, domains: Collection[str] = ()
) -> Iterator[Question]:
    """Endless distinct questions of a split, without those that `generate_questions` holds out from
    searches and loops; the same ones for the same seed."""
    return _of_part(dataset, seed, split, domains, held_out=False)


def require_domains(dataset: Dataset, split: str, domains: Collection[str]) -> None:
    """Raises `TrainingError` for an unknown domain, or if none of the split's questions is about
    these domains only."""
    if unknown := sorted({*domains} - DOMAINS[dataset]):
        raise TrainingError(
            f"--domain {unknown[0]}: {dataset} has no such domain; domains: "
            f"{', '.join(sorted(DOMAINS[dataset]))}"
        )
    if domains and dataset == "worlds":
        single, combined = intents_of(api_worlds.Split(split))
        if not any(_domains_of(intent.name) <= {*domains} for intent in (*single, *combined)):
            raise TrainingError(
                f"--domain {', '.join(sorted(domains))}: no instruction of the split {split} is "
                "only about these; add more domains"
            )


def unplayed_questions(
    dataset: Dataset, seed: int, split: str, domains: Collection[str] = ()
) -> Iterator[Question]:
    """Endless distinct questions of a split that `generate_questions` holds out."""
    return _of_part(dataset, seed, split, domains, held_out=True)


def split_questions(
    dataset: Dataset, seed: int, split: str, domains: Collection[str] = ()
) -> Iterator[Question]:
    """Endless distinct questions of a whole split, for a split that no training learns from."""
    return _of_part(dataset, seed, split, domains, held_out=None)


def _of_part(
    dataset: Dataset, seed: int, split: str, domains: Collection[str], *, held_out: bool | None
) -> Iterator[Question]:
    ids: set[str] = set()
    for question in _generated(dataset, seed, split, domains):
        if question.id not in ids and held_out in (None, _is_held_out(question.task.prompt)):
            ids.add(question.id)
            yield question


def _generated(
    dataset: Dataset, seed: int, split: str, domains: Collection[str]
) -> Iterator[Question]:
    """Generated questions about these domains, endless if the split has any. Word problems may
    repeat."""
    wanted = frozenset(domains) or DOMAINS[dataset]
    if dataset == "worlds":
        for instance in api_worlds.stream(split, seed):
            if wanted >= _domains_of(instance.recipe.intent):
                yield Question(id=f"{instance.split}/{instance.id}", task=instance.task)
        return
    # The links of a story are all in the same domain.
    selection = word_problems.Selection(chains=lambda chain: chain[0].domain in wanted)
    for problem in word_problems.stream(split, seed, selection):
        yield Question(
            id=f"{problem.split}/{problem.id}",
            task=Task(prompt=problem.prompt),
            gold=problem.answer,
        )


@cache
def _domains_of(intent: str) -> frozenset[str]:
    """Domains whose APIs the intent uses."""
    return frozenset(api_worlds.APIS[name].domain for name in api_worlds.INTENTS[intent].tools)


def _is_held_out(prompt: str) -> bool:
    """Whether a question is in the held-out quarter, by the hash of its prompt."""
    return split_of(prompt) is Split.TEST


def puzzles(
    game: AnyEnvironment,
    *,
    size: int | None,
    difficulty: JsonObject,
    setting: JsonObject,
    seed: int,
    train: int,
    held_out: int,
) -> Questions:
    """Puzzles of the training split and of the validation split. Raises `TrainingError`."""

    def part(split: Split, count: int) -> tuple[Question, ...]:
        drawn = game.puzzles(split, seed, count, levels)
        return tuple(
            Question(id=f"{split}/{instance.id}", task=game.task(instance)) for instance in drawn
        )

    try:
        levels = game.levels(size, difficulty, setting)
        parts = part(Split.TRAIN, train), part(Split.VALIDATION, held_out)
    except InvalidOptions as error:
        raise TrainingError(str(error)) from error
    except ValueError as error:
        raise TrainingError(f"{game.name}: {error}") from error
    source = f"{game.name}, train and validation split, generated from seed {seed}"
    return Questions(source, "puzzle", *parts)


def from_file(path: Path, held_out: int) -> Questions:
    """Questions of JSON lines, or Parquet, with `question` and `answer`, in GSM8K's format: in an
    answer with `####`, only the text after it counts. A quarter of the questions, by their hash, is
    held out.

    Raises `UnreadableData`, which reports the line.
    """
    questions: dict[str, Question] = {}
    for number, question in _read(path):
        if question.id in questions:
            raise UnreadableData(f"{path}:{number}: an earlier line has the same question")
        questions[question.id] = question
    return _split_questions(path, "answer", questions.values(), held_out)


def from_tasks(path: Path, file: TaskFile, held_out: int) -> Questions:
    """The tasks of a file. A quarter of them, by the hash of the problem, is held out: tasks of the
    same problem are on the same side.

    Raises `UnreadableData` for a file with nothing on one side.
    """
    questions = [
        Question(id=content_hash(task.model_dump_json())[:16], task=task) for task in file.tasks
    ]
    checker = "judge" if file.about.environment in JUDGED else "puzzle"
    return _split_questions(path, checker, questions, held_out)


def _split_questions(
    path: Path, checker: str, questions: Iterable[Question], held_out: int
) -> Questions:
    train: list[Question] = []
    held_out_questions: list[Question] = []
    for question in questions:
        # The prompts of puzzles are all alike.
        prompt = question.task.model_dump_json() if checker == "puzzle" else question.task.prompt
        (held_out_questions if _is_held_out(prompt) else train).append(question)
    if not train or not held_out_questions:
        raise UnreadableData(
            f"{path} has {len(train)} questions for the search and {len(held_out_questions)} "
            "held out: it needs "
            "some of both"
        )
    return Questions(path.name, checker, tuple(train), tuple(held_out_questions[:held_out]))


def _read(path: Path) -> Iterator[tuple[int, Question]]:
    if path.suffix == PARQUET:
        reading = read_records(
            path, lambda number, row: (number, _question(row, f"{path}[{number}]"))
        )
        for entry in reading.skipped:
            raise UnreadableData(f"{path.parent / entry.where}: {entry.reason} ({entry.detail})")
        yield from reading.records
        return
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE + 1):
                number += 1
                if len(raw) > MAX_LINE:
                    raise UnreadableData(f"{path}:{number}: longer than {MAX_LINE:,} bytes")
                if raw.strip():
                    yield number, _question(_parsed(raw, f"{path}:{number}"), f"{path}:{number}")
    except OSError as error:
        raise UnreadableData(f"{path}: cannot be read ({error.strerror or error})") from error


def _parsed(raw: bytes, where: str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UnreadableData(f"{where}: not JSON ({error})") from error


def _question(record: Any, where: str) -> Question:
    match record:
        case {"question": str(text), "answer": str() | int() | float() as answer} if not isinstance(
            answer, bool
        ):
            gold = str(answer).rpartition("####")[2].strip()
        case _:
            raise UnreadableData(f'{where}: expected an object with "question" and "answer"')
    if not gold:
        raise UnreadableData(f"{where}: the answer is empty")
    try:
        task = Task(prompt=text)
        text.encode()
    except ValueError as error:
        raise UnreadableData(
            f"{where}: the question is empty, longer than {MAX_PROMPT_CHARS:,} characters, or not "
            "UTF-8"
        ) from error
    return Question(id=hashlib.sha256(text.encode()).hexdigest()[:16], task=task, gold=gold)

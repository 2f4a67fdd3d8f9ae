"""Competition mathematics: AIME 2024 and 2025, and OlympiadBench's text-only English problems.

AIME's answers are whole numbers from 0 to 999, those of 2024 with leading zeros. OlympiadBench's
are LaTeX: a number, an expression, a tuple or an interval, sometimes several; Math-Verify compares
them (`workers.judging.math_verify`). Held against themselves by it, AIME's are all right, and so
are OlympiadBench's but 1965, which is a sentence, and, in a box without dollar signs, 1970 (it ends
in a full stop) and 2349 (`$221,$8$`, as published).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from bench.datasets import Dataset, Item, Request, sample
from bench.datasets.location import data_root, find
from bench.errors import DataError, UsageError
from trainers.data.json_files import Reading, Skipped, Unreadable, document, fit, read_lines

AIME_SOURCE = "https://artofproblemsolving.com/wiki/index.php/AIME_Problems_and_Solutions"
OLYMPIADBENCH_SOURCE = "https://github.com/OpenBMB/OlympiadBench"
_AIME_FILES = {2024: "aime2024_marti.json", 2025: "aime2025_insight_replay.jsonl"}
_AIME_FOLDERS = ("math/aime", "aime", "")
_OLYMPIADBENCH_FOLDERS = ("math/olympiadbench", "olympiadbench", "")
MAX_TEXT = 100_000

AnswerKind = Literal["Numerical", "Expression", "Tuple", "Interval"]


@dataclass(frozen=True)
class MathQuestion:
    """A problem with its answer."""

    id: str
    question: str
    answer: str
    """As a checker takes it: a whole number, or LaTeX between dollar signs."""
    kind: AnswerKind
    several: bool = False
    """Whether the answer consists of several."""
    unit: str | None = None
    """Of the answer, which does not contain it."""
    subject: str = ""
    tolerance: float | None = None
    """How far a number may be off, where the problem says so."""


class _Aime2024(BaseModel):
    id: str = Field(min_length=1, max_length=100)
    prompt: str = Field(min_length=1, max_length=MAX_TEXT)
    answer: str = Field(pattern=r"^[0-9]{1,3}$")


class _Aime2025(BaseModel):
    id: str = Field(min_length=1, max_length=100)
    question: str = Field(min_length=1, max_length=MAX_TEXT)
    answer: str = Field(pattern=r"^[0-9]{1,3}$")


class _Olympiad(BaseModel):
    id: int
    subfield: str = Field(max_length=200)
    context: str | None = Field(max_length=MAX_TEXT)
    question: str = Field(min_length=1, max_length=MAX_TEXT)
    final_answer: list[str] = Field(min_length=1, max_length=1)
    is_multiple_answer: bool
    unit: str | None = Field(max_length=100)
    answer_type: AnswerKind
    error: str | None = Field(max_length=100)


def aime(year: int, data: Path | None = None) -> Reading[MathQuestion]:
    """A year's 30 problems. Raises DataError, UsageError for another year."""
    if year not in _AIME_FILES:
        raise UsageError(f"there is no AIME of {year} here; there are 2024 and 2025")
    root = data_root(f"AIME {year}", data, AIME_SOURCE)
    path = find(root, _AIME_FOLDERS, _AIME_FILES[year], AIME_SOURCE)
    if year == 2025:
        return read_lines(path, lambda _, value: _aime_2025(value))
    try:
        rows = document(path)
        if not isinstance(rows, list):
            raise Unreadable("not the expected fields", "the file is not a list of problems")
    except Unreadable as error:
        return Reading((), (error.at(path.name),))
    records: list[MathQuestion] = []
    skipped: list[Skipped] = []
    for number, value in enumerate(rows):
        try:
            row = fit(_Aime2024, value)
            records.append(_integer(f"aime24/{row.id}", row.prompt, row.answer))
        except Unreadable as error:
            skipped.append(error.at(f"{path.name}[{number}]"))
    return Reading(tuple(records), tuple(skipped))


def olympiadbench(data: Path | None = None) -> Reading[MathQuestion]:
    """All 675 problems. Raises DataError."""
    root = data_root("OlympiadBench", data, OLYMPIADBENCH_SOURCE)
    path = find(root, _OLYMPIADBENCH_FOLDERS, "test.jsonl", OLYMPIADBENCH_SOURCE)
    return read_lines(path, lambda _, value: _olympiad(value))


def load_aime(year: int, request: Request) -> Dataset:
    """A year's problems as the bench asks them. Raises DataError, also for a broken record, so
    that no score is of fewer problems than it says."""
    if request.split != "test":
        raise UsageError(f"AIME has no split {request.split!r}; it has test")
    read = aime(year, request.data)
    if read.skipped:
        first = read.skipped[0]
        raise DataError(f"AIME {year}: {first.where}: {first.reason} ({first.detail})")
    items = [Item(each.id, each.question, each.answer) for each in read.records]
    chosen = sample(items, request.samples, request.seed)
    name = f"aime{year % 100}"
    return Dataset(name, "test", chosen, len(items), f"aime/{_AIME_FILES[year]}")


def _aime_2025(value: Any) -> MathQuestion:
    row = fit(_Aime2025, value)
    return _integer(f"aime25/{row.id.removeprefix('2025-')}", row.question, row.answer)


def _integer(name: str, question: str, answer: str) -> MathQuestion:
    return MathQuestion(name, question, str(int(answer)), "Numerical")


def _olympiad(value: Any) -> MathQuestion:
    row = fit(_Olympiad, value)
    answer = row.final_answer[0].strip()
    if not answer:
        raise Unreadable("no answer")
    try:
        tolerance = float(row.error) if row.error else None
    except ValueError as error:
        raise Unreadable("not the expected fields", "error: no number") from error
    return MathQuestion(
        id=f"olympiadbench/{row.id}",
        question=f"{row.context}\n\n{row.question}" if row.context else row.question,
        answer=answer if "$" in answer else f"${answer}$",
        kind=row.answer_type,
        several=row.is_multiple_answer,
        unit=row.unit,
        subject=row.subfield,
        tolerance=tolerance,
    )

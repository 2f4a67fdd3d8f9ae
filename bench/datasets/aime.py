r"""AIME 2024 and 2025, 30 problems a year, in their published forms.

| set | files | fields |
|---|---|---|
| HuggingFaceH4/aime_2024 | `data/train-….parquet` | id, problem, solution, answer, year |
| Maxwell-Jia/AIME_2024 | `aime_2024_problems.parquet` | ID, Problem, Solution, Answer |
| math-ai/aime24 | `test-….parquet` | id, problem, solution (`\boxed{…}`) |
| opencompass/AIME2025 | `aime2025-I.jsonl`, `aime2025-II.jsonl` | question, answer |
| math-ai/aime25 | `test.jsonl` | id, problem, answer |
| TsinghuaC3I/MARTI (2024) | a JSON list | id, prompt, answer |
| simular-ai/insight-replay (2025) | JSON lines | id, year, question, answer |

All but the last two are on Hugging Face. Answers are whole numbers from 0 to 999, as numbers or
text, some with leading zeros; one answer of 2025 is `336^\circ` in several copies.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, Field

from loopline.agents.answers import last_boxed
from loopline.bench.datasets import Dataset, Item, Request, sample
from loopline.bench.datasets.location import data_root, find_first, not_found_error
from loopline.bench.datasets.math_questions import MathQuestion
from loopline.bench.errors import DataError, UsageError
from loopline.bench.numeric_answers import numeric_benchmark
from loopline.trainers.data.json_files import (
    Reading,
    Skipped,
    Unreadable,
    fit,
    read_lines,
    read_list,
)
from loopline.trainers.data.parquet_rows import read_rows

YEARS = (2024, 2025)
SOURCES = {
    2024: "https://huggingface.co/datasets/HuggingFaceH4/aime_2024 or "
    "https://huggingface.co/datasets/Maxwell-Jia/AIME_2024",
    2025: "https://huggingface.co/datasets/opencompass/AIME2025 or "
    "https://huggingface.co/datasets/math-ai/aime25",
}
_NAMED = {
    2024: ("aime2024_marti.json", "aime_2024_problems.parquet"),
    2025: ("aime2025_insight_replay.jsonl", "aime2025-I*.jsonl"),
}
"""Files whose names contain the year."""
_UNNAMED = ("data/train-*-of-*.parquet", "test-*-of-*.parquet", "test.jsonl")
"""Files whose folder's name contains the year."""
_COPIES = {
    2024: ("aime_2024", "AIME_2024", "aime24"),
    2025: ("AIME2025", "aime_2025", "aime25"),
}
"""Folders of copies of a set, under each copy's own name."""
_CONTESTS = ("aime2025-I", "aime2025-II")
_TOGETHER = ("math/aime", "aime")
"""Folders with files of both years."""
MAX_TEXT = 100_000

_DEGREES = re.compile(r"\^\s*(\\circ|\{\s*\\circ\s*\})$")
_WHOLE = re.compile(r"[0-9]{1,3}")
_NAMED_YEAR = re.compile(r"aime[-_]?(?:20)?(?P<year>2[0-9])(?![0-9])", re.IGNORECASE)
_YEAR = re.compile(r"(?P<year>(?:19|20)\d\d)-(?P<rest>.+)")


_Short = Annotated[str, Field(max_length=100)]


class _Row(BaseModel):
    problem_id: int | _Short | None = Field(default=None, validation_alias=AliasChoices("id", "ID"))
    problem: str = Field(
        min_length=1,
        max_length=MAX_TEXT,
        validation_alias=AliasChoices("problem", "Problem", "question", "prompt"),
    )
    answer: int | _Short | None = Field(
        default=None, validation_alias=AliasChoices("answer", "Answer")
    )
    solution: str | None = Field(
        default=None, validation_alias=AliasChoices("solution", "Solution")
    )
    year: int | _Short | None = None


_COLUMNS = (
    "problem", "Problem", "question", "prompt", "answer", "Answer", "solution", "Solution", "id",
    "ID", "year",
)  # fmt: skip


def read(year: int, data: Path | None = None) -> Reading[MathQuestion]:
    """Return a year's problems from the first published form that exists, or from the file `data`.
    Raises DataError, and UsageError for another year."""
    if year not in YEARS:
        raise UsageError(f"there is no AIME {year} here; there are AIME 2024 and AIME 2025")
    paths = _paths(year, data)
    for path in paths:
        if (named := _year_of_path(path)) not in (None, year):
            raise DataError(f"{path} is AIME {named} by its name, but AIME {year} was requested")
    records: list[MathQuestion] = []
    skipped: list[Skipped] = []
    for path in paths:
        reading = _file(path, year)
        records += reading.records
        skipped += reading.skipped
    names = tuple(path.name for path in paths)
    if data is None or not data.is_file():
        skipped += _missing(names)
    return Reading(tuple(records), tuple(skipped), names)


def load(year: int, request: Request) -> Dataset:
    """Return a year's problems as items of a bench. Raises DataError, also for a broken record, so
    that no score covers fewer problems than it claims."""
    if request.split != "test":
        raise UsageError(f"AIME has no split {request.split!r}; it has test")
    reading = read(year, request.data)
    if reading.skipped:
        first = reading.skipped[0]
        raise DataError(f"AIME {year}: {first.where}: {first.reason} ({first.detail})")
    items = [Item(record.id, record.question, record.answer) for record in reading.records]
    selected_items = sample(items, request.samples, request.seed)
    return Dataset(
        f"aime{year % 100}", "test", selected_items, len(items), f"aime/{', '.join(reading.files)}"
    )


def _paths(year: int, data: Path | None) -> tuple[Path, ...]:
    if data is not None and data.is_file():
        return (data,)
    root = data_root(f"AIME {year}", data, SOURCES[year])
    copies = tuple(candidate for name in _COPIES[year] for candidate in (f"math/{name}", name))
    folders = (*_TOGETHER, *copies, "")
    files = find_first(root, folders, _NAMED[year]) or find_first(root, (*copies, ""), _UNNAMED)
    if not files:
        raise not_found_error(root, folders, (*_NAMED[year], *_UNNAMED), SOURCES[year])
    return files


def _year_of_path(path: Path) -> int | None:
    """Return the year in the file's name, else in its folders' names: many copies state it nowhere
    else."""
    for part in reversed(path.resolve().parts[-3:]):
        if match := _NAMED_YEAR.search(part):
            return 2000 + int(match["year"])
    return None


def _missing(names: tuple[str, ...]) -> list[Skipped]:
    """Return a year's missing contest, if a set has one file per contest."""
    there = {name for name in names if name.startswith(_CONTESTS)}
    wanted = {f"{contest}.jsonl" for contest in _CONTESTS} if there else set[str]()
    return [
        Skipped(name, "a file of the set is missing", f"alongside {', '.join(sorted(there))}")
        for name in sorted(wanted)
        if not any(entry.startswith(name) for entry in there)
    ]


def _file(path: Path, year: int) -> Reading[MathQuestion]:
    stem = path.name.partition(".")[0][:100]
    ids: set[str] = set()

    def question(number: int, value: Any) -> MathQuestion:
        parsed_question = _question(year, f"{stem}/{number}", value)
        if parsed_question.id in ids:
            raise Unreadable("a duplicate problem", parsed_question.id)
        ids.add(parsed_question.id)
        return parsed_question

    if path.suffix == ".parquet":
        return read_rows(path, _COLUMNS, question)
    if ".jsonl" in path.suffixes:
        return read_lines(path, question)
    return read_list(path, question)


def _question(year: int, place: str, value: Any) -> MathQuestion:
    row = fit(_Row, value)
    name = place if row.problem_id is None else str(row.problem_id)
    dated = _YEAR.fullmatch(name)
    years = {str(row.year)} if row.year is not None else set[str]()
    years |= {dated["year"]} if dated else set()
    if years - {str(year)}:
        raise Unreadable("a problem of another year", f"{name}: {', '.join(sorted(years))}")
    return MathQuestion(
        id=f"aime{year % 100}/{dated['rest'] if dated else name}",
        question=row.problem,
        answer=_integer_answer(row),
    )


def _integer_answer(row: _Row) -> str:
    """Return the answer without leading zeros. Raises Unreadable."""
    written = last_boxed(row.solution or "") if row.answer is None else str(row.answer)
    if written is None:
        raise Unreadable("no answer", "no answer field, and no box in the solution")
    bare = _DEGREES.sub("", written.strip().strip("$").strip()).strip()
    if not _WHOLE.fullmatch(bare):
        raise Unreadable("the answer is not a whole number from 0 to 999", written)
    return str(int(bare))


AIME24 = numeric_benchmark("aime24", "AIME 2024", lambda request: load(2024, request))
AIME25 = numeric_benchmark("aime25", "AIME 2025", lambda request: load(2025, request))

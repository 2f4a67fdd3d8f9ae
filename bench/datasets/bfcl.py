"""BFCL v4's single-turn Python categories, including the live ones (questions from users)
(ShishirPatil/gorilla, Apache-2.0).

JSON lines in files named `.json`. A question has an id, messages and the offered functions. Another
file has its possible answers under the same id: for each expected call, the list of right values of
each argument, where `""` means that the argument may be left out. Irrelevance and live_relevance
have no such file: calling nothing is right in the former, and calling something in the latter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from loopline.bench.datasets.location import data_root, find
from loopline.bench.errors import UsageError
from loopline.trainers.data.json_files import Reading, Skipped, Unreadable, fit, read_lines

Category = Literal[
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance",
    "live_relevance",
]  # fmt: skip
WRITTEN: tuple[Category, ...] = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
)  # fmt: skip
"""Categories written by the data set's authors."""
LIVE: tuple[Category, ...] = (
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance",
    "live_relevance",
)  # fmt: skip
"""Categories of questions contributed by users of function calling."""
CATEGORIES: tuple[Category, ...] = (*WRITTEN, *LIVE)
WITHOUT_CALLS: frozenset[Category] = frozenset({"irrelevance", "live_irrelevance"})
"""Categories in which no function should be called."""
WITHOUT_ANSWERS: frozenset[Category] = frozenset({*WITHOUT_CALLS, "live_relevance"})
"""Categories without published calls."""
SOURCE = (
    "https://github.com/ShishirPatil/gorilla (folder "
    "berkeley-function-call-leaderboard/bfcl_eval/data, files BFCL_v4_*.json and possible_answer/)"
)
POSSIBLE_ANSWERS = "possible_answer"
_FOLDERS = ("tool/bfcl_v4", "bfcl_v4", "data", "")
MAX_TEXT = 100_000

ParameterType = Literal[
    "string", "integer", "float", "boolean", "array", "tuple", "dict", "any"
]  # fmt: skip


class Parameter(BaseModel):
    """A parameter's type; descriptions and defaults are kept as extra fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: ParameterType
    items: Parameter | None = None
    """Element type of an array or a tuple."""


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    properties: dict[str, Parameter]
    required: tuple[str, ...] = ()


class Function(BaseModel):
    """An offered function, as published: types are Python's, not JSON Schema's."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(min_length=1, max_length=500)
    description: str = Field(default="", max_length=MAX_TEXT)
    parameters: Parameters


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    role: str = Field(max_length=20)
    content: str = Field(max_length=MAX_TEXT)


PossibleArguments = dict[str, list[JsonValue]]
"""Right values by argument; `""` among them means that the argument may be left out."""


@dataclass(frozen=True)
class WantedCall:
    """An expected call."""

    name: str
    arguments: PossibleArguments


@dataclass(frozen=True)
class Question:
    """One question of a category."""

    id: str
    category: Category
    messages: tuple[Message, ...]
    functions: tuple[Function, ...]
    wanted: tuple[WantedCall, ...]
    """Expected calls; empty if none are published."""

    def function(self, name: str) -> Function | None:
        """Return the offered function with this name, if there is one."""
        return next((candidate for candidate in self.functions if candidate.name == name), None)


class _Row(BaseModel):
    id: str = Field(min_length=1, max_length=200)
    question: list[list[Message]] = Field(min_length=1, max_length=1)
    function: list[Function] = Field(max_length=200)
    """Offered functions; empty for a few questions of live_irrelevance."""


class _AnswerRow(BaseModel):
    id: str = Field(min_length=1, max_length=200)
    ground_truth: list[dict[str, PossibleArguments]] = Field(min_length=1, max_length=100)


def load(category: str, data: Path | None = None) -> Reading[Question]:
    """Find and read a category's questions. Raises DataError for missing files, UsageError for an
    unknown category.
    """
    valid_category: Category | None = next(
        (candidate for candidate in CATEGORIES if candidate == category), None
    )
    if valid_category is None:
        raise UsageError(f"BFCL has no category {category!r} here; it has {', '.join(CATEGORIES)}")
    root, file = data_root("BFCL", data, SOURCE), file_of(valid_category)
    possible = None
    if valid_category not in WITHOUT_ANSWERS:
        folders = tuple(f"{folder}/{POSSIBLE_ANSWERS}".lstrip("/") for folder in _FOLDERS)
        possible = find(root, folders, file, SOURCE)
    return read(valid_category, find(root, _FOLDERS, file, SOURCE), possible)


def file_of(category: Category) -> str:
    """Return the file name of a category's questions, which its file of possible answers shares."""
    return f"BFCL_v4_{category}.json"


def read(category: Category, questions_path: Path, possible: Path | None) -> Reading[Question]:
    """Read a file's questions in order, with the answers from the other file, and note unreadable
    records. Without `possible`, every question is unreadable, except in a category without
    published answers."""
    answers: dict[str, tuple[WantedCall, ...]] = {}

    def answer(_: int, value: Any) -> None:
        row = fit(_AnswerRow, value)
        if row.id in answers:
            raise Unreadable("a duplicate id", row.id)
        answers[row.id] = _wanted_calls(row)

    def question(_: int, value: Any) -> Question:
        row = fit(_Row, value)
        wanted = () if category in WITHOUT_ANSWERS else answers.pop(row.id, None)
        if wanted is None:
            raise Unreadable("a question without an answer", row.id)
        parsed_question = Question(
            row.id, category, tuple(row.question[0]), tuple(row.function), wanted
        )
        if not all(parsed_question.function(call.name) for call in wanted):
            raise Unreadable("a wanted function is not on offer", row.id)
        return parsed_question

    skipped: list[Skipped] = []
    if possible is not None:
        published = read_lines(possible, answer).skipped
        skipped += [
            replace(skipped_row, where=f"{POSSIBLE_ANSWERS}/{skipped_row.where}")
            for skipped_row in published
        ]
    questions = read_lines(questions_path, question)
    file = f"{POSSIBLE_ANSWERS}/{file_of(category)}"
    unmatched_answers = [Skipped(file, "an answer without a question", name) for name in answers]
    return Reading(questions.records, (*skipped, *questions.skipped, *unmatched_answers))


def _wanted_calls(row: _AnswerRow) -> tuple[WantedCall, ...]:
    if any(len(call) != 1 for call in row.ground_truth):
        raise Unreadable("not the expected fields", "ground_truth: one function a call")
    calls = tuple(
        WantedCall(name, arguments) for call in row.ground_truth for name, arguments in call.items()
    )
    for call in calls:
        for name, possible in call.arguments.items():
            if not all(_is_object_of_lists(item) for value in possible for item in _objects(value)):
                raise Unreadable("not the expected fields", f"{call.name}.{name}: values in lists")
    return calls


def _objects(value: JsonValue) -> list[dict[str, JsonValue]]:
    """Return all objects that a possible value is or contains."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _is_object_of_lists(item: dict[str, JsonValue]) -> bool:
    """Whether each key of a possible object has a list of possible values."""
    return all(isinstance(values, list) for values in item.values())

"""OlympiadBench's text-only English math problems (OpenBMB/OlympiadBench, MIT).

Two files with the same fields: `test.jsonl`, used by Qwen2.5-Math (675 problems), and
`OE_TO_maths_en_COMP.parquet`, the authors' current release (674). Answers are LaTeX: a number, an
expression, a tuple or an interval, sometimes several; they are compared part by part
(`loopline.workers.judging.expressions`). Every answer is right against itself
(`tests/bench/test_answer_cases`). The answer of 2349 is published as `$221,$8$`, for which a bare
221 would be right; it is corrected here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from loopline.bench.datasets.location import data_root, find_first, not_found_error
from loopline.bench.datasets.math_questions import AnswerKind, MathQuestion
from loopline.trainers.data.json_files import Reading, Unreadable, fit, read_lines
from loopline.trainers.data.parquet_rows import read_rows

SOURCE = (
    "https://huggingface.co/datasets/Hothan/OlympiadBench (OE_TO_maths_en_COMP.parquet) or "
    "https://github.com/QwenLM/Qwen2.5-Math (evaluation/data/olympiadbench/test.jsonl)"
)
_CONFIG = "OE_TO_maths_en_COMP"
"""Name of the subset: open-ended, text only, mathematics, English, competition."""
_FOLDERS = (
    "math/olympiadbench", "olympiadbench", f"OlympiadBench/OlympiadBench/{_CONFIG}",
    f"OlympiadBench/{_CONFIG}", f"math/OlympiadBench/OlympiadBench/{_CONFIG}", "OlympiadBench", "",
)  # fmt: skip
_FILES = ("test.jsonl", f"{_CONFIG}.parquet")
MAX_TEXT = 100_000
_CORRECTED = {"$221,$8$": "$221,8$"}


class _Row(BaseModel):
    id: int
    subfield: str = Field(max_length=200)
    context: str | None = Field(max_length=MAX_TEXT)
    question: str = Field(min_length=1, max_length=MAX_TEXT)
    final_answer: list[str] = Field(min_length=1, max_length=1)
    is_multiple_answer: bool
    unit: str | None = Field(max_length=100)
    answer_type: AnswerKind
    error: str | None = Field(max_length=100)


def load(data: Path | None = None) -> Reading[MathQuestion]:
    """Read all problems in file order; `data` may be the file itself. Raises DataError."""
    path = _path(data)
    if path.suffix == ".parquet":
        return read_rows(path, tuple(_Row.model_fields), lambda _, value: _question(value))
    read = read_lines(path, lambda _, value: _question(value))
    return Reading(read.records, read.skipped, (path.name,))


def _path(data: Path | None) -> Path:
    if data is not None and data.is_file():
        return data
    root = data_root("OlympiadBench", data, SOURCE)
    files = find_first(root, _FOLDERS, _FILES)
    if not files:
        raise not_found_error(root, _FOLDERS, _FILES, SOURCE)
    return files[0]


def _question(value: Any) -> MathQuestion:
    row = fit(_Row, value)
    answer = row.final_answer[0].strip()
    if not answer:
        raise Unreadable("no answer")
    try:
        tolerance = float(row.error) if row.error else None
    except ValueError as error:
        raise Unreadable("not the expected fields", "error: not a number") from error
    return MathQuestion(
        id=f"olympiadbench/{row.id}",
        question=f"{row.context}\n\n{row.question}" if row.context else row.question,
        answer=_CORRECTED.get(answer, answer if "$" in answer else f"${answer}$"),
        kind=row.answer_type,
        several=row.is_multiple_answer,
        unit=row.unit,
        subject=row.subfield,
        tolerance=tolerance,
    )

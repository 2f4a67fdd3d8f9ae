"""Questions that a training is not to learn from: a benchmark's, for example."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from loopline.trainers.data.data_files import ROWS, read_records
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.errors import UnreadableData

ENDINGS = (".txt", *ROWS)


def read_questions(path: Path) -> list[str]:
    """The field `question` of rows, or of any other file its lines. Raises `UnreadableData`: what
    can't be read here would be learned from."""
    if not path.name.endswith(ROWS):
        try:
            return [line for line in path.read_text().splitlines() if line]
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableData(
                f"--hold-out {path} cannot be read: {error}; give a UTF-8 text file with one "
                "question on each line, or rows with `question` (.jsonl, .parquet)"
            ) from error
    reading = read_records(path, _question)
    if reading.skipped:
        first = reading.skipped[0]
        detail = f" ({first.detail})" if first.detail else ""
        raise UnreadableData(
            f"--hold-out: {path.parent / first.where}: {first.reason}{detail}: fix or remove it, "
            "else its question would be learned from"
        )
    return list(reading.records)


def _question(number: int, value: Any) -> str:
    question = cast(dict[str, Any], value).get("question") if isinstance(value, dict) else None
    if not isinstance(question, str) or not question.strip():
        raise Unreadable("expected an object with `question`, a text")
    return question

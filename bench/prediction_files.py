"""Predictions made elsewhere: JSON lines with `prediction` and `gold`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from loopline.bench.checkers.numeric import gold_number
from loopline.bench.errors import DataError, UsageError

MAX_FILE_BYTES = 1024**3
SHOWN_ERRORS = 20


@dataclass(frozen=True)
class Prediction:
    """One line of a file."""

    line: int
    prediction: str | None
    """Predicted text; None for a missing answer, which is wrong."""
    gold: str


def read_predictions(path: Path) -> list[Prediction]:
    """Read every prediction of a file. Raises DataError that lists each bad line as file:line."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise DataError(f"{path}: larger than 1 GiB; split it")
    predictions: list[Prediction] = []
    problems: list[str] = []
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            try:
                predictions.append(_parse(number, raw))
            except ValueError as error:
                problems.append(f"{path}:{number}: {error}")
    if problems:
        shown_problems = problems[:SHOWN_ERRORS]
        if len(problems) > len(shown_problems):
            shown_problems.append(f"… and {len(problems) - len(shown_problems)} more bad lines")
        raise DataError(
            "\n".join(shown_problems) + "\nNothing was scored; fix or remove these lines."
        )
    if not predictions:
        raise DataError(f"{path}: the file contains no predictions")
    return predictions


def _parse(number: int, raw: bytes) -> Prediction:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason} at byte {error.start})") from error
    try:
        row = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply to be a prediction") from error
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(row, dict):
        # Every bad line is the same kind of error.
        raise ValueError("expected an object with `prediction` and `gold`")  # noqa: TRY004
    for name in ("prediction", "gold"):
        if name not in row:
            keys = ", ".join(f"`{key}`" for key in list(row)[:8]) or "nothing"
            raise ValueError(f"`{name}` is missing (the line has {keys})")
    prediction = None if row["prediction"] is None else _text("prediction", row["prediction"])
    gold = _text("gold", row["gold"])
    gold_number(gold)
    return Prediction(number, prediction, gold)


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and value.is_integer():
            # Some JSON writers turn 18 into 18.0, which a text checker must not see.
            return str(int(value))
        return str(value)
    kind = "null" if value is None else type(value).__name__
    raise ValueError(f"`{name}` must be a string or a number, not {kind}")

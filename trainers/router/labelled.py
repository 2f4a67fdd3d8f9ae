"""Labelled answers: what two models answered to the same questions, and whether they were right.

A line is an object with `id`, `question`, `small` and `big`. Both hold `text` and `right`, and may
hold `cost` in US dollars; `small` may hold `logprobs`, the natural log-probability of each token of
its text, and `samples`, the texts of further answers. Other fields are left unread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from loopline.agents.records import MAX_PROMPT_CHARS
from loopline.agents.router.evidence import MAX_SAMPLES, AnswerEvidence
from loopline.trainers.data.data_files import read_records
from loopline.trainers.data.json_files import Limits, Unreadable, fit
from loopline.trainers.errors import TrainingError
from loopline.trainers.router.prices import BIG_PRICES, SMALL_PRICES, Prices

MAX_QUESTIONS = 200_000
MAX_TEXT_CHARS = 1_000_000
_LIMITS = Limits(file_bytes=2**30, line_bytes=8 * 2**20)
_SHOWN = 20


class BadLabels(TrainingError):
    """A file of labelled answers cannot be used."""


def _finite(value: float) -> float:
    if not math.isfinite(value) or value > 1e-6:
        raise ValueError("a log-probability is a number, at most 0")
    return min(0.0, value)


def _text_of(value: object) -> object:
    return cast("dict[str, Any]", value).get("text") if isinstance(value, dict) else value


def _verdict(value: object) -> object:
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
Right = Annotated[bool, BeforeValidator(_verdict), Field(strict=True)]
Dollars = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class BigAnswer(_Lenient):
    """Of the big model."""

    text: Text
    right: Right
    cost: Dollars | None = None


class SmallAnswer(BigAnswer):
    """Of the small model."""

    logprobs: tuple[Annotated[float, AfterValidator(_finite)], ...] | None = None
    samples: (
        Annotated[
            tuple[Annotated[Text, BeforeValidator(_text_of)], ...], Field(max_length=MAX_SAMPLES)
        ]
        | None
    ) = None


class _Line(_Lenient):
    id: Annotated[str | int, Field(union_mode="left_to_right")]
    question: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
    small: SmallAnswer
    big: BigAnswer


@dataclass(frozen=True, slots=True)
class Labelled:
    """One question with both answers. Costs are in US dollars."""

    id: str
    evidence: AnswerEvidence
    small_right: bool
    big_right: bool
    small_cost: float
    """Of everything that was drawn of the small model: its samples too."""
    big_cost: float


def read_labelled(
    path: Path, small: Prices = SMALL_PRICES, big: Prices = BIG_PRICES
) -> list[Labelled]:
    """Every line. Raises BadLabels that lists each bad line as file:line."""
    if not path.is_file():
        raise BadLabels(f"{path}: there is no such file")
    reading = read_records(path, lambda number, row: (number, _labelled(row, small, big)), _LIMITS)
    problems = [
        f"{path.parent / entry.where}: {entry.reason}{f': {entry.detail}' if entry.detail else ''}"
        for entry in reading.skipped
    ]
    lines: dict[str, int] = {}
    for number, row in reading.records:
        if (earlier := lines.setdefault(row.id, number)) != number:
            problems.append(f"{path}:{number}: the id {row.id[:80]!r} stands in line {earlier} too")
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more bad lines"] if problems[_SHOWN:] else []
        raise BadLabels(
            "\n".join([*problems[:_SHOWN], *more]) + "\nNothing was learned; fix these lines."
        )
    if len(reading.records) > MAX_QUESTIONS:
        raise BadLabels(f"{path}: more than {MAX_QUESTIONS:,} questions; split the file")
    return [row for _, row in reading.records]


def _labelled(row: object, small: Prices, big: Prices) -> Labelled:
    line = fit(_Line, row)
    if isinstance(line.id, str) and not line.id.strip():
        raise Unreadable("not the expected fields", "id: an empty text")
    samples = line.small.samples or ()
    price = small.cost(line.question, "".join((line.small.text, *samples)))
    return Labelled(
        id=str(line.id),
        evidence=AnswerEvidence(line.question, line.small.text, line.small.logprobs or (), samples),
        small_right=line.small.right,
        big_right=line.big.right,
        small_cost=price if line.small.cost is None else line.small.cost,
        big_cost=big.cost(line.question, line.big.text) if line.big.cost is None else line.big.cost,
    )


def require_enough(rows: Sequence[Labelled], least: int, where: str) -> None:
    """Raises BadLabels."""
    if len(rows) < least:
        raise BadLabels(
            f"{where}: {len(rows)} labelled questions; at least {least} are needed, to learn from "
            "some and to calibrate on others"
        )

"""Labelled answers: the answers of two models to the same questions, and whether they were right.

A line is an object with `id`, `question`, `small` and `big`. Both contain `text` and `right`, and
may contain `cost`, the cost of the text in US dollars. `small` may contain `logprobs`, natural
log-probabilities of the tokens of its text, `samples`, the texts of further answers, and
`samples_cost`, the cost of all of these. Costs may also be at the top level of the line: `costs`
with `small` and `big`, or `small_cost` and `big_cost`. Other fields are ignored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from loopline.agents.records import MAX_PROMPT_CHARS
from loopline.agents.router.features import MAX_SAMPLES, AnswerEvidence
from loopline.trainers.data.data_files import read_records
from loopline.trainers.data.json_files import Limits, Unreadable, fit
from loopline.trainers.errors import TrainingError
from loopline.trainers.router.prices import BIG_PRICES, SMALL_PRICES, Prices

MAX_QUESTIONS = 200_000
MOST_USED = 10_000
"""Most questions that are used, drawn at random if there are more: the products of all pairs are
kept in memory."""
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


def _content(value: object) -> object:
    # An endpoint's message without content.
    return "" if value is None else value


def _verdict(value: object) -> object:
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else value


def _logprobs(value: object) -> object:
    """Plain numbers from the responses of endpoints: {"content": [{"logprob": …}]},
    {"token_logprobs": […]}, or a list of such tokens, some of them without a number."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        value = fields.get("content", fields.get("token_logprobs", value))
    if not isinstance(value, list):
        return value
    numbers = [
        cast("dict[str, Any]", token).get("logprob") if isinstance(token, dict) else token
        for token in cast("list[object]", value)
    ]
    return [number for number in numbers if number is not None]


Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
Right = Annotated[bool, BeforeValidator(_verdict), Field(strict=True)]
Dollars = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class BigAnswer(_Lenient):
    """Answer of the big model."""

    text: Annotated[Text, BeforeValidator(_content)]
    right: Right
    cost: Dollars | None = None


class SmallAnswer(BigAnswer):
    """Answer of the small model."""

    logprobs: Annotated[
        tuple[Annotated[float, AfterValidator(_finite)], ...] | None, BeforeValidator(_logprobs)
    ] = None
    samples: (
        Annotated[
            tuple[Annotated[Text, BeforeValidator(_text_of)], ...], Field(max_length=MAX_SAMPLES)
        ]
        | None
    ) = None
    samples_cost: Dollars | None = None


class _Costs(_Lenient):
    small: Dollars | None = None
    big: Dollars | None = None


class _Line(_Lenient):
    id: Annotated[str | int, Field(union_mode="left_to_right")]
    question: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
    small: SmallAnswer
    big: BigAnswer
    costs: Annotated[_Costs | None, Field(validation_alias=AliasChoices("costs", "cost"))] = None
    small_cost: Dollars | None = None
    big_cost: Dollars | None = None

    def stated_costs(self) -> tuple[float | None, float | None]:
        """Stated costs of the small and of the big answer; None if the line has none."""
        costs = self.costs or _Costs()
        return (
            _first(self.small.cost, costs.small, self.small_cost),
            _first(self.big.cost, costs.big, self.big_cost),
        )


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


@dataclass(frozen=True, slots=True)
class Labelled:
    """One question with both answers. Costs are in US dollars."""

    id: str
    evidence: AnswerEvidence
    small_right: bool
    big_right: bool
    small_cost: float
    """Cost of the small model's one answer."""
    big_cost: float
    samples_cost: float = 0.0
    """Cost of the further answers sampled from the small model."""
    estimated: bool = False
    """Whether a cost was estimated from the length of a text."""
    has_feedback: bool = True
    """Whether feedback determines which answer is right; if not, the big model's counts as
    right."""


FEEDBACK_SHARE = 0.9
"""If at least this share of the questions has feedback, the others' feedback is assumed to be
pending."""


def without_waiting(rows: list[Labelled]) -> tuple[list[Labelled], bool]:
    """The rows to calibrate on, and whether feedback labelled each of them. If nearly all rows have
    feedback, the others are left out: the big model's mistakes would count as the small one's."""
    labelled = [row for row in rows if row.has_feedback]
    if labelled and len(labelled) >= FEEDBACK_SHARE * len(rows):
        return labelled, True
    return rows, False


def read_labelled(
    path: Path,
    small: Prices = SMALL_PRICES,
    big: Prices = BIG_PRICES,
    notes: list[str] | None = None,
) -> list[Labelled]:
    """Every line of a file. Remarks about them are added to `notes`. Raises BadLabels, which lists
    each bad line as file:line."""
    if not path.is_file():
        raise BadLabels(f"{path}: there is no such file")
    reading = read_records(path, lambda number, row: (number, _labelled(row, small, big)), _LIMITS)
    problems = [
        f"{path.parent / entry.where}: {entry.reason}{f': {entry.detail}' if entry.detail else ''}"
        for entry in reading.skipped
    ]
    rows: dict[str, tuple[int, Labelled]] = {}
    repeated = 0
    for number, row in reading.records:
        earlier_number, earlier = rows.setdefault(row.id, (number, row))
        if earlier_number == number:
            continue
        if row == earlier:
            repeated += 1
        else:
            problems.append(
                f"{path}:{number}: line {earlier_number} has the same id {row.id[:80]!r}, with "
                "other answers"
            )
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more bad lines"] if problems[_SHOWN:] else []
        raise BadLabels(
            "\n".join([*problems[:_SHOWN], *more]) + "\nNothing was learned; fix these lines."
        )
    if len(rows) > MAX_QUESTIONS:
        raise BadLabels(f"{path}: more than {MAX_QUESTIONS:,} questions; split the file")
    if repeated and notes is not None:
        notes.append(f"lines that repeat another one word for word, and are left out: {repeated:,}")
    return [row for _, row in rows.values()]


def thinned(rows: Sequence[Labelled], seed: int, notes: list[str]) -> list[Labelled]:
    """Up to `MOST_USED` of the rows, drawn at random; remarks about them are added to `notes`."""
    questions = Counter(row.evidence.question for row in rows)
    again = len(rows) - len(questions)
    if again:
        notes.append(
            f"lines that share their question with another line: {again:,}; they stay together, "
            "so that no question is both learned and tested"
        )
    if len(rows) <= MOST_USED:
        return list(rows)
    notes.append(f"{MOST_USED:,} of {len(rows):,} questions are used, drawn at random")
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = generator.choice(len(rows), size=MOST_USED, replace=False)
    return [rows[at] for at in sorted(map(int, drawn))]


def _labelled(row: object, small: Prices, big: Prices) -> Labelled:
    line = fit(_Line, row)
    if isinstance(line.id, str) and not line.id.strip():
        raise Unreadable("not the expected fields", "id: an empty text")
    samples = line.small.samples or ()
    small_cost, big_cost = line.stated_costs()
    return Labelled(
        id=str(line.id),
        evidence=AnswerEvidence(line.question, line.small.text, line.small.logprobs or (), samples),
        small_right=line.small.right,
        big_right=line.big.right,
        small_cost=small.cost(line.question, line.small.text) if small_cost is None else small_cost,
        big_cost=big.cost(line.question, line.big.text) if big_cost is None else big_cost,
        samples_cost=_samples_cost(line, small_cost, small),
        estimated=small_cost is None or big_cost is None,
    )


def _samples_cost(line: _Line, small_cost: float | None, price: Prices) -> float:
    """Cost of all samples: the stated one, otherwise in proportion to the answer's cost by length,
    or estimated."""
    samples = line.small.samples or ()
    if line.small.samples_cost is not None:
        return line.small.samples_cost
    if small_cost is None:
        # Sampled in one batch: the question is read once, with the answer.
        return price.cost("", "".join(samples))
    written = max(1, len(line.small.text))
    return small_cost * sum(max(1, len(text)) for text in samples) / written


def require_enough(rows: Sequence[Labelled], least: int, where: str) -> None:
    """Raise BadLabels if there are fewer rows than `least`."""
    if len(rows) < least:
        raise BadLabels(
            f"{where}: {len(rows)} labelled questions; at least {least} are needed, to learn from "
            "some and to calibrate on others"
        )

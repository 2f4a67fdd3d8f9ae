"""Reading AIME and OlympiadBench as published, and the reports about unreadable records."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.datasets import Request, aime, olympiadbench
from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.errors import DataError, UsageError
from loopline.bench.registry import load, names
from loopline.workers.judging.math_verify import MathVerifier

needs_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not point to the published data"
)

OLYMPIAD: dict[str, Any] = {
    "id": 1, "subfield": "Algebra", "context": None, "question": "How many?", "solution": ["Two."],
    "final_answer": ["2"], "is_multiple_answer": False, "unit": None, "answer_type": "Numerical",
    "error": None,
}  # fmt: skip


def write(path: Path, *rows: Any) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@needs_data
@pytest.mark.parametrize("year", [2024, 2025])
def test_aime_is_read_completely_with_integer_answers(year: int) -> None:
    """The answers of 2024 have leading zeros there."""
    read = aime.read(year)
    assert (len(read.records), read.skipped) == (30, ())
    assert len({question.id for question in read.records}) == 30
    assert all(question.answer == str(int(question.answer)) for question in read.records)
    assert all(0 <= int(question.answer) <= 999 for question in read.records)


@needs_data
def test_olympiadbench_is_read_completely() -> None:
    """As many of each kind as published."""
    read = olympiadbench.load()
    assert (len(read.records), read.skipped) == (675, ())
    assert Counter(question.kind for question in read.records) == {
        "Numerical": 572, "Expression": 64, "Tuple": 33, "Interval": 6,
    }  # fmt: skip
    assert sum(question.several for question in read.records) == 94
    assert sum(question.unit is not None for question in read.records) == 8
    assert [question.tolerance for question in read.records if question.tolerance] == [0.1]


@needs_data
def test_the_bench_can_ask_aime() -> None:
    """`bench run aime24`."""
    assert {"aime24", "aime25"} <= set(names())
    dataset = load("aime24", Request(samples=5))
    assert (dataset.name, len(dataset.items), dataset.available) == ("aime24", 5, 30)
    with pytest.raises(UsageError, match="no split 'train'; it has test"):
        load("aime25", Request(split="train"))


@needs_data
def test_math_verify_accepts_a_gold_answer_of_each_kind() -> None:
    """One question of each kind; `test_answer_cases` checks every gold answer."""
    questions = olympiadbench.load().records
    firsts = {question.kind: question.answer for question in reversed(questions)}
    with MathVerifier() as verifier:
        assert {
            kind: verifier.check(f"So it is {answer}", answer) for kind, answer in firsts.items()
        } == {"Numerical": True, "Expression": True, "Tuple": True, "Interval": True}


def test_answers_get_dollar_signs_and_the_context_precedes_the_question(
    tmp_path: Path,
) -> None:
    write(tmp_path / "test.jsonl", {**OLYMPIAD, "context": "Let $x$.", "error": "1e-1"})
    (question,) = olympiadbench.load(tmp_path).records
    assert (question.answer, question.question) == ("$2$", "Let $x$.\n\nHow many?")
    assert (question.id, question.tolerance) == ("olympiadbench/1", 0.1)


def test_unreadable_problems_are_reported(tmp_path: Path) -> None:
    write(
        tmp_path / "test.jsonl",
        OLYMPIAD, {**OLYMPIAD, "final_answer": ["1", "2"]}, {**OLYMPIAD, "answer_type": "Essay"},
        {**OLYMPIAD, "final_answer": [" "]}, {**OLYMPIAD, "error": "little"},
    )  # fmt: skip
    read = olympiadbench.load(tmp_path)
    assert len(read.records) == 1
    assert [(skip.where, skip.reason) for skip in read.skipped] == [
        ("test.jsonl:2", "not the expected fields"),
        ("test.jsonl:3", "not the expected fields"),
        ("test.jsonl:4", "no answer"),
        ("test.jsonl:5", "not the expected fields"),
    ]


def test_the_bench_does_not_ask_a_broken_aime(tmp_path: Path) -> None:
    """A score covers 30 problems or does not exist."""
    path = tmp_path / "aime2024_marti.json"
    path.write_text(json.dumps([{"id": "0", "prompt": "?", "answer": "025"}, {"id": "1"}]))
    assert [question.answer for question in aime.read(2024, tmp_path).records] == ["25"]
    with pytest.raises(DataError, match=r"aime2024_marti\.json\[1\]: not the expected fields"):
        load("aime24", Request(data=tmp_path))
    path.write_text("{}")
    with pytest.raises(DataError, match="not a list of problems"):
        load("aime24", Request(data=tmp_path))


def test_missing_data_are_reported_with_their_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file test\.jsonl or OE_TO.*Hothan/OlympiadBench"):
        olympiadbench.load(tmp_path)
    with pytest.raises(UsageError, match="no AIME 1983 here; there are AIME 2024 and AIME 2025"):
        aime.read(1983, tmp_path)

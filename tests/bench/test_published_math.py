"""AIME and OlympiadBench in their published files, and grade-school mathematics as the team
receives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopline.agents.environments import word_problems
from loopline.agents.environments.math_team import MathProblem
from loopline.bench.datasets import Dataset, Request, aime, olympiadbench
from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.errors import DataError, UsageError
from loopline.bench.registry import load
from tests.bench.test_code_datasets import write


def write_parquet(path: Path, *rows: dict[str, Any]) -> None:
    """A Parquet file of rows with their own types."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def read(year: int, folder: Path) -> list[tuple[str, str, str]]:
    """Id, question and answer."""
    reading = aime.read(year, folder)
    assert reading.skipped == ()
    return [(record.id, record.question, record.answer) for record in reading.records]


def skipped(reading: Any) -> list[tuple[str, str]]:
    """The location and reason of the error."""
    return [(record.where, record.reason) for record in reading.skipped]


# ---- AIME, each published form


def test_aime_2024_is_read_from_huggingfaceh4(tmp_path: Path) -> None:
    row = {
        "id": 60, "problem": "1 + 1?", "solution": "So 3.", "answer": "002", "url": "",
        "year": "2024",
    }  # fmt: skip
    write_parquet(tmp_path / "math/aime_2024/data/train-00000-of-00001.parquet", row)
    assert read(2024, tmp_path) == [("aime24/60", "1 + 1?", "2")]
    assert read(2024, tmp_path / "math/aime_2024") == [("aime24/60", "1 + 1?", "2")]


def test_aime_2024_is_read_from_maxwell_jia(tmp_path: Path) -> None:
    row = {"ID": "2024-II-4", "Problem": "1 + 1?", "Solution": "So \\boxed{3}.", "Answer": 2}
    write_parquet(tmp_path / "aime/aime_2024_problems.parquet", row)
    assert read(2024, tmp_path) == [("aime24/II-4", "1 + 1?", "2")]


def test_aime_2024_is_read_from_math_ai_with_its_boxed_answers(tmp_path: Path) -> None:
    row = {"id": 60, "problem": "1 + 1?", "solution": "\\boxed{025}", "url": ""}
    write_parquet(tmp_path / "aime24/test-00000-of-00001.parquet", row)
    assert read(2024, tmp_path) == [("aime24/60", "1 + 1?", "25")]


def test_aime_2025_is_read_from_both_files_of_opencompass(tmp_path: Path) -> None:
    """Its problems have no ids, and an answer has a degree sign."""
    first = {"question": "1 + 1?", "answer": "2"}
    second = {"question": "How many degrees?", "answer": "336^\\circ"}
    write(tmp_path / "AIME2025/aime2025-I.jsonl", first, first)
    write(tmp_path / "AIME2025/aime2025-II.jsonl", second)
    assert read(2025, tmp_path) == [
        ("aime25/aime2025-I/1", "1 + 1?", "2"),
        ("aime25/aime2025-I/2", "1 + 1?", "2"),
        ("aime25/aime2025-II/1", "How many degrees?", "336"),
    ]
    (tmp_path / "AIME2025/aime2025-II.jsonl").unlink()
    assert skipped(aime.read(2025, tmp_path)) == [
        ("aime2025-II.jsonl", "a file of the set is missing")
    ]


def test_aime_2025_is_read_from_math_ai(tmp_path: Path) -> None:
    write(tmp_path / "aime25/test.jsonl", {"problem": "1 + 1?", "answer": "2", "id": "0"})
    assert read(2025, tmp_path) == [("aime25/0", "1 + 1?", "2")]


def test_a_file_can_have_any_name(tmp_path: Path) -> None:
    """`--data FILE`: lines, a list, or Parquet."""
    row = {"problem": "1 + 1?", "answer": "$2$"}
    write(tmp_path / "mine.jsonl", row)
    write(tmp_path / "mine.json", json.dumps([row]))
    write_parquet(tmp_path / "mine.parquet", row)
    for name, place in (("mine.jsonl", 1), ("mine.json", 0), ("mine.parquet", 0)):
        assert read(2025, tmp_path / name) == [(f"aime25/mine/{place}", "1 + 1?", "2")]
    request = Request(data=tmp_path / "mine.jsonl", choices={"dataset": "aime25"})
    assert load("math", request).source == "aime25, from mine.jsonl"


def test_the_problems_of_one_year_are_refused_as_another_year_s(tmp_path: Path) -> None:
    """If only the folder or the file states the year."""
    write(tmp_path / "aime25/test.jsonl", {"problem": "1 + 1?", "answer": "2", "id": "0"})
    for data in (tmp_path / "aime25", tmp_path / "aime25/test.jsonl"):
        assert len(read(2025, data)) == 1
        with pytest.raises(DataError, match=r"test\.jsonl is AIME 2025 by its name, but AIME 2024"):
            aime.read(2024, data)


def test_unreadable_problems_of_aime_are_reported(tmp_path: Path) -> None:
    """Even if a file is of another year."""
    good = {"problem": "1 + 1?", "answer": "2", "id": "0"}
    write(
        tmp_path / "test.jsonl",
        good, good, {**good, "id": "1", "year": 2024}, {**good, "id": "2024-I-3"},
        {**good, "id": "4", "answer": "1000"}, {**good, "id": "5", "answer": "-1"},
        {**good, "id": "6", "answer": None}, {"answer": "2"}, "{",
    )  # fmt: skip
    reading = aime.read(2025, tmp_path)
    assert len(reading.records) == 1
    assert skipped(reading) == [
        ("test.jsonl:2", "a duplicate problem"),
        ("test.jsonl:3", "a problem of another year"),
        ("test.jsonl:4", "a problem of another year"),
        ("test.jsonl:5", "the answer is not a whole number from 0 to 999"),
        ("test.jsonl:6", "the answer is not a whole number from 0 to 999"),
        ("test.jsonl:7", "no answer"),
        ("test.jsonl:8", "not the expected fields"),
        ("test.jsonl:9", "not JSON"),
    ]
    (tmp_path / "test.jsonl").unlink()
    garbage = tmp_path / "aime_2024_problems.parquet"
    garbage.write_bytes(b"\x00" * 64)
    with pytest.raises(DataError, match=r"aime24: aime_2024_problems\.parquet: the file cannot be"):
        load("math", Request(data=tmp_path, choices={"dataset": "aime24"}))


# ---- OlympiadBench

OLYMPIAD: dict[str, Any] = {
    "id": 1606, "question": "How many?", "solution": ["Two."], "final_answer": ["2"],
    "context": None, "image_1": None, "modality": "Text-only", "difficulty": "Competition",
    "is_multiple_answer": False, "unit": "cm", "answer_type": "Numerical", "error": "1e-1",
    "question_type": "Open-ended", "subfield": "Algebra", "subject": "Math", "language": "English",
}  # fmt: skip


def test_olympiadbench_is_read_from_its_authors_parquet(tmp_path: Path) -> None:
    """Wherever its repository or its file is, and under its own name."""
    config = "OE_TO_maths_en_COMP"
    for folder in (f"OlympiadBench/OlympiadBench/{config}", "math/olympiadbench", "."):
        path = tmp_path / f"{folder}/{config}.parquet"
        write_parquet(path, OLYMPIAD, {**OLYMPIAD, "id": 2, "unit": None, "error": None})
        for named in (tmp_path, path):
            reading = olympiadbench.load(named)
            assert (len(reading.records), reading.skipped) == (2, ())
        first = reading.records[0]
        assert (first.id, first.answer, first.unit) == ("olympiadbench/1606", "$2$", "cm")
        assert (first.tolerance, first.kind, first.subject) == (0.1, "Numerical", "Algebra")
        path.unlink()


def test_unreadable_rows_of_olympiadbench_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "OE_TO_maths_en_COMP.parquet"
    write_parquet(
        path, OLYMPIAD, {**OLYMPIAD, "final_answer": None}, {**OLYMPIAD, "answer_type": "Essay"}
    )
    assert skipped(olympiadbench.load(tmp_path)) == [
        (f"{path.name}[1]", "not the expected fields"),
        (f"{path.name}[2]", "not the expected fields"),
    ]
    path.write_text("no Parquet")
    assert skipped(olympiadbench.load(tmp_path)) == [(path.name, "the file cannot be read")]


# ---- grade school


def answers(dataset: Dataset) -> list[str]:
    """The answers that the judge receives."""
    return [problem.answer for problem in dataset.problems if isinstance(problem, MathProblem)]


def write_gsm8k(folder: Path) -> None:
    write(
        folder / "gsm8k/test.jsonl",
        {"question": "2 + 2?", "answer": "<<2+2=4711>>4711 and so\n#### 1,234"},
        {"question": "3 + 3?", "answer": "#### 6"},
    )


def test_a_team_is_asked_gsm8k_and_only_the_judge_has_its_answers(tmp_path: Path) -> None:
    """Nothing of an answer or a worked solution goes onto the bus."""
    write_gsm8k(tmp_path)
    dataset = load("math", Request(data=tmp_path, choices={"dataset": "gsm8k", "attempts": 2}))
    assert [item.id for item in dataset.items[:2]] == ["math/gsm8k/test/0#1", "math/gsm8k/test/0#2"]
    assert (dataset.available, dataset.source) == (4, "gsm8k, from gsm8k/test.jsonl")
    assert answers(dataset) == ["1234", "6"]
    shown_items = [(item.question, item.about) for item in dataset.items]
    assert "2 + 2?" in repr(shown_items)
    assert "1234" not in repr(shown_items)
    assert "4711" not in repr(dataset.items)


def test_gsm8k_is_read_from_the_parquet_of_hugging_face(tmp_path: Path) -> None:
    """The same questions under the same ids, and broken ones are reported."""
    path = tmp_path / "gsm8k/main/test-00000-of-00001.parquet"
    write_parquet(path, {"question": "3 + 3?", "answer": "#### 6"})
    for data in (tmp_path, tmp_path / "gsm8k", path):
        (item,) = load("gsm8k", Request(data=data)).items
        assert (item.id, item.question, item.gold) == ("gsm8k/test/0", "3 + 3?", "6")
    write_parquet(path, {"question": "3 + 3?", "answer": "#### 6"}, {"question": "?", "answer": ""})
    with pytest.raises(DataError, match=r"\.parquet\[1\]: the answer does not end in"):
        load("gsm8k", Request(data=tmp_path))
    path.write_text("no Parquet")
    with pytest.raises(DataError, match=r"00001\.parquet: the file cannot be read"):
        load("gsm8k", Request(data=tmp_path))


def test_a_team_is_asked_generated_word_problems() -> None:
    """`test` is the data held out from training, in equal parts; it follows from the seed."""
    request = Request(samples=8, seed=7, choices={"dataset": "wordproblems"})
    dataset = load("math", request)
    assert load("math", request) == dataset
    splits = [str(item.about["split"]) for item in dataset.items]
    assert sorted(splits) == sorted([*word_problems.HELD_OUT] * 2)
    team_request = Request("unseen_wordings", 3, seed=7, choices={"dataset": "wordproblems"})
    problems = word_problems.generate("unseen_wordings", 3, 7)
    math_dataset = load("math", team_request)
    assert [item.question for item in math_dataset.items] == [
        problem.prompt for problem in problems
    ]
    assert answers(math_dataset) == [problem.answer for problem in problems]


@pytest.mark.parametrize(
    ("dataset", "split", "message"),
    [
        ("gsm8k", "valid", "gsm8k has no 'valid'; it has: train, test"),
        ("wordproblems", "unseen", "no split 'unseen'; there are: held_out, train"),
        ("aime25", "train", "aime25 has no 'train'; it has: test"),
        ("olympiadbench", "train", "olympiadbench has no 'train'; it has: test"),
    ],
)
def test_a_missing_split_is_refused(dataset: str, split: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load("math", Request(split, choices={"dataset": dataset}))


def test_generated_problems_are_not_read_from_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--data has no effect here"):
        load("math", Request(data=tmp_path, choices={"dataset": "wordproblems"}))


def test_a_problem_unsuitable_for_teams_is_reported(tmp_path: Path) -> None:
    """Here a tolerance of zero."""
    write(tmp_path / "test.jsonl", {**OLYMPIAD, "error": "0"})
    with pytest.raises(DataError, match=r"olympiadbench/1606: tolerance: .*greater than 0"):
        load("math", Request(data=tmp_path, choices={"dataset": "olympiadbench"}))


# ---- what is not there


@pytest.mark.parametrize(
    ("dataset", "addresses"),
    [
        ("aime24", ["datasets/HuggingFaceH4/aime_2024", "datasets/Maxwell-Jia/AIME_2024"]),
        ("aime25", ["datasets/opencompass/AIME2025", "datasets/math-ai/aime25"]),
        ("olympiadbench", ["datasets/Hothan/OlympiadBench", "github.com/QwenLM/Qwen2.5-Math"]),
        ("gsm8k", ["github.com/openai/grade-school-math"]),
    ],
)
def test_missing_mathematics_data_are_reported_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, addresses: list[str]
) -> None:
    """Without a folder, without the specified folder, and without a file in it."""
    monkeypatch.delenv(VARIABLE, raising=False)
    for data in (None, tmp_path / "away", tmp_path):
        with pytest.raises(DataError) as caught:
            load("math", Request(data=data, choices={"dataset": dataset}))
        assert all(address in str(caught.value) for address in addresses)
        assert data is None or str(data) in str(caught.value)

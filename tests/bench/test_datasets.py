"""Reading GSM8K as published, and the errors for missing or broken data."""

from __future__ import annotations

import gzip
import json
import lzma
import os
from collections import Counter
from pathlib import Path

import pytest

from loopline.agents.records import JsonObject
from loopline.bench.datasets import Item, Request, best_constant, sample
from loopline.bench.datasets.gsm8k import VARIABLE, gold_of
from loopline.bench.errors import DataError, UsageError
from loopline.bench.registry import load, names

REAL = os.environ.get(VARIABLE)
needs_data = pytest.mark.skipif(
    not REAL, reason=f"{VARIABLE} does not point to the published questions"
)
ROW = {"question": "What is 9 * 2?", "answer": "9 * 2 = <<9*2=18>>18\n#### 18"}


def write(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@needs_data
def test_the_published_test_split_is_read_completely() -> None:
    """1,319 integers, two of them negative."""
    dataset = load("gsm8k", Request())
    assert len(dataset.items) == dataset.available == 1319
    assert all(item.gold.lstrip("-").isdigit() for item in dataset.items)
    assert sum(item.gold.startswith("-") for item in dataset.items) == 2


@needs_data
def test_five_hundred_questions_at_seed_123_match_delegate_s_sample() -> None:
    """The same draw as pandas' sample(n=500, random_state=123), in the same order."""
    dataset = load("gsm8k", Request(samples=500, seed=123))
    assert [item.id.rpartition("/")[2] for item in dataset.items[:5]] == [
        "476", "1189", "912", "1177", "874",
    ]  # fmt: skip
    assert len({item.id for item in dataset.items}) == 500


def items(n: int) -> list[Item]:
    return [Item(f"x/{at}", f"question {at}", str(at)) for at in range(n)]


def test_a_smaller_sample_is_the_head_of_a_larger_one() -> None:
    """This allows extending a run."""
    assert sample(items(100), 40, 7)[:10] == sample(items(100), 10, 7)


def test_all_items_keep_the_order_of_the_file() -> None:
    """Without a sample size nothing is drawn."""
    assert sample(items(9), None, 7) == tuple(items(9))
    assert sample(items(9), 9, 7) == tuple(items(9))
    assert sample(items(9), 50, 7) == tuple(items(9))


def test_another_seed_draws_other_items() -> None:
    """And the same seed draws the same items."""
    assert sample(items(100), 10, 1) != sample(items(100), 10, 2)
    assert sample(items(100), 10, 1) == sample(items(100), 10, 1)


@pytest.mark.parametrize("samples", [0, -3])
def test_an_empty_sample_is_refused(samples: int) -> None:
    """Its report would be about nothing."""
    with pytest.raises(UsageError, match="--samples must be at least 1"):
        sample(items(9), samples, 7)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_an_impossible_seed_is_refused(seed: int) -> None:
    with pytest.raises(UsageError, match="--seed must lie between 0 and 4294967295"):
        sample(items(9), 3, seed)


@pytest.mark.parametrize(
    "place", ["math/gsm8k/test.jsonl", "gsm8k/test.jsonl", "grade_school_math/data/test.jsonl",
              "test.jsonl"],
)  # fmt: skip
def test_a_folder_is_searched_at_the_usual_location_of_the_file(tmp_path: Path, place: str) -> None:
    """This project's layout, the published repository's, or the bare files."""
    write(tmp_path / place, ROW)
    dataset = load("gsm8k", Request(data=tmp_path))
    (item,) = dataset.items
    assert (item.id, item.question, item.gold) == ("gsm8k/test/0", "What is 9 * 2?", "18")
    assert item.about == {"steps": 1, "values": ["18", "18"]}


def test_the_data_can_be_a_single_file(tmp_path: Path) -> None:
    """With any name."""
    path = write(tmp_path / "mine.jsonl", ROW, ROW)
    assert len(load("gsm8k", Request(data=path)).items) == 2


def test_compressed_files_are_read_directly(tmp_path: Path) -> None:
    """xz and gzip."""
    text = json.dumps(ROW).encode()
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress(text))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(text))
    for name in ("a.jsonl.xz", "b.jsonl.gz"):
        assert load("gsm8k", Request(data=tmp_path / name)).items[0].gold == "18"


def test_harmless_oddities_are_forgiven(tmp_path: Path) -> None:
    """Byte-order mark, CRLF, blank lines, additional fields, a missing final newline."""
    path = tmp_path / "odd.jsonl"
    line = json.dumps({**ROW, "more": 1})
    path.write_bytes(f"\ufeff{line}\r\n\r\n\n{line}".encode())
    assert [item.id for item in load("gsm8k", Request(data=path)).items] == [
        "gsm8k/test/0",
        "gsm8k/test/1",
    ]


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("#### 18", "18"),
        ("x\n####1,080", "1080"),
        ("#### -5", "-5"),
        ("#### $1,234.50", "1234.50"),
        ("#### 18.", "18"),
        ("#### 1 #### 2", "2"),
        ("18", None),
        ("#### eighteen", None),
        ("#### ", None),
        ("#### 18 apples", None),
    ],
)
def test_the_gold_is_the_number_after_the_marker(answer: str, gold: str | None) -> None:
    """Commas and currency are stripped; nothing is guessed."""
    assert gold_of(answer) == gold


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{broken", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "expected an object"),
        (b'{"answer": "#### 1"}', "`question` must be"),
        (b'{"question": " ", "answer": "#### 1"}', "`question` must be"),
        (b'{"question": "q"}', "`answer` must be"),
        (b'{"question": "q", "answer": "no marker"}', "does not end in"),
        (b'{"question": "\xff", "answer": "#### 1"}', "not UTF-8"),
    ],
)
def test_broken_lines_are_reported_by_position(tmp_path: Path, line: bytes, message: str) -> None:
    """The reader neither skips nor guesses."""
    path = tmp_path / "bad.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b"\n" + line + b"\n")
    with pytest.raises(DataError, match=message) as caught:
        load("gsm8k", Request(data=path))
    assert str(caught.value).startswith(f"{path}:2:")


def test_missing_data_are_reported_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No environment, a wrong folder, a wrong path, an empty folder."""
    monkeypatch.delenv(VARIABLE, raising=False)
    requests = [Request(), Request(data=tmp_path / "absent"), Request(data=tmp_path)]
    for request in requests:
        with pytest.raises(DataError, match=r"openai/grade-school-math.*--data PATH"):
            load("gsm8k", request)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(DataError, match="there is no such folder"):
        load("gsm8k", Request())


def test_a_damaged_archive_is_reported(tmp_path: Path) -> None:
    """Cut off halfway."""
    path = tmp_path / "test.jsonl.xz"
    path.write_bytes(lzma.compress(json.dumps(ROW).encode() * 50)[:-9])
    with pytest.raises(DataError, match="cannot be decompressed"):
        load("gsm8k", Request(data=path))


def test_an_archive_that_expands_beyond_the_size_of_a_data_set_is_not_unpacked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bomb.jsonl.xz"
    path.write_bytes(lzma.compress(b" " * 80_000_000, preset=0))
    with pytest.raises(DataError, match=r"bomb\.jsonl\.xz:1: the file is too large"):
        load("gsm8k", Request(data=path))


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    """A benchmark without questions is not a benchmark."""
    path = tmp_path / "test.jsonl"
    path.write_bytes(b"\n")
    with pytest.raises(DataError, match="contains no questions"):
        load("gsm8k", Request(data=path))


def test_an_unknown_name_or_split_lists_the_known_ones() -> None:
    """A typo is answered with the available names."""
    assert {"gsm8k", "wordproblems"} <= set(names())
    with pytest.raises(UsageError, match=r"gsm8k, .*wordproblems"):
        load("gsm9k", Request())
    with pytest.raises(UsageError, match="train and test"):
        load("gsm8k", Request(split="dev"))
    with pytest.raises(UsageError, match="held_out, train"):
        load("wordproblems", Request(split="dev"))


def test_word_problems_follow_from_the_seed() -> None:
    """Generated, distinct, each with its split."""
    request = Request(split="held_out", samples=10, seed=5)
    dataset = load("wordproblems", request)
    assert dataset == load("wordproblems", request)
    assert len({item.id for item in dataset.items}) == 10
    assert {str(item.about["split"]) for item in dataset.items} == {
        "new_numbers", "unseen_combinations", "unseen_wordings", "unseen_structures",
    }  # fmt: skip


def test_a_benchmark_reports_the_most_frequent_answer_as_a_baseline() -> None:
    items = load("wordproblems", Request("held_out", 200, seed=7))
    [(label, right)] = constants(items.reference)
    assert label == f"always {Counter(item.gold for item in items.items).most_common(1)[0][0]}"
    assert 1 < right < 20
    assert constants(best_constant(["2", None, "1", "2"])) == [("always 2", 2)]
    assert constants(best_constant([None], "a secret")) == [("a secret", 0)]


def constants(reference: JsonObject) -> list[tuple[str, int]]:
    assert isinstance(reference["baselines"], dict)
    return [(name, int(str(right))) for name, right in reference["baselines"].items()]

"""GSM8K as published: rows of `question` and `answer`, where the answer ends in `#### n`.

JSON lines, plain or compressed with xz or gzip, as in its authors' repository, or Parquet, as on
their Hugging Face page. Files are read in place and never copied. The reader ignores harmless
deviations (byte-order mark, CRLF, blank lines, extra fields, commas in the gold) and reports file
and line of any other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopline.agents.records import JsonObject
from loopline.bench.datasets import Dataset, Item, Request, best_constant, sample
from loopline.bench.errors import DataError, UsageError
from loopline.bench.numeric_answers import numeric_benchmark
from loopline.trainers.data.json_files import Limits, read_lines
from loopline.trainers.data.parquet_rows import read_rows

VARIABLE = "LOOPLINE_DATA"
SPLITS = ("train", "test")
_FOLDERS = ("math/gsm8k", "gsm8k", "grade_school_math/data", "")
_NAMES = (
    "{split}.jsonl", "{split}.jsonl.xz", "{split}.jsonl.gz", "main/{split}-*-of-*.parquet",
    "{split}-*-of-*.parquet",
)  # fmt: skip
_GOLD = re.compile(r"[-+]?\$?[0-9][0-9,]*(?:\.[0-9]+)?|[-+]?\.[0-9]+")
_ANNOTATION = re.compile(r"<<[^<>]{0,200}=([-0-9.,/]{1,40})>>")
"""Computations in a GSM8K solution, `<<16-3-4=9>>`: sub-answers are compared with their results."""
MAX_LINE = 1_000_000

WHERE = (
    "Get them from https://github.com/openai/grade-school-math (folder grade_school_math/data, "
    "files train.jsonl and test.jsonl) or https://huggingface.co/datasets/openai/gsm8k (folder "
    "main) and point to them: --data PATH (a file, or a folder that "
    f"has math/gsm8k/ or grade_school_math/data/ or the files themselves), or {VARIABLE}=FOLDER "
    "in the environment."
)


def load(request: Request) -> Dataset:
    """Read the questions of a split. Raises DataError for missing files and broken lines."""
    if request.split not in SPLITS:
        raise UsageError(f"GSM8K has no split {request.split!r}; it has train and test")
    path = find(request.split, request.data)
    items = read(path, request.split)
    selected_items = sample(items, request.samples, request.seed)
    source = f"{path.parent.name}/{path.name}"
    reference = best_constant([item.gold for item in selected_items])
    return Dataset("gsm8k", request.split, selected_items, len(items), source, reference)


def find(split: str, data: Path | None) -> Path:
    """Return the file of a split. Raises DataError that states where to get it."""
    if data is not None:
        if data.is_file():
            return data
        if not data.exists():
            raise DataError(f"--data {data}: there is no such file or folder. {WHERE}")
        root, origin = data, f"--data {data}"
    else:
        named = os.environ.get(VARIABLE, "")
        if not named:
            raise DataError(f"the GSM8K questions are not part of this project. {WHERE}")
        root, origin = Path(named), f"{VARIABLE}={named}"
        if not root.is_dir():
            raise DataError(f"{origin}: there is no such folder. {WHERE}")
    for folder in _FOLDERS:
        for name in _NAMES:
            for candidate in sorted((root / folder).glob(name.format(split=split))):
                if candidate.is_file():
                    return candidate
    raise DataError(
        f"{origin}: no GSM8K file {split}.jsonl (or .xz, .gz) or main/{split}-….parquet was found "
        f"in it. {WHERE}"
    )


def read(path: Path, split: str) -> list[Item]:
    """Read every item of a file. Raises DataError with file and line."""
    items: list[Item] = []
    for place, row in _rows(path):
        if not isinstance(row, dict):
            raise DataError(f"{place}: expected an object with question and answer")
        question, answer = row.get("question"), row.get("answer")
        if not isinstance(question, str) or not question.strip():
            raise DataError(f"{place}: `question` must be a non-empty string")
        if not isinstance(answer, str):
            raise DataError(f"{place}: `answer` must be a string that ends in `#### number`")
        gold = gold_of(answer)
        if gold is None:
            raise DataError(f"{place}: the answer does not end in `#### number`: …{answer[-60:]!r}")
        values = _ANNOTATION.findall(answer)
        about: JsonObject = {"steps": len(values), "values": [*values, gold]}
        items.append(Item(f"gsm8k/{split}/{len(items)}", question, gold, about))
    if not items:
        raise DataError(f"{path}: the file contains no questions")
    return items


def gold_of(answer: str) -> str | None:
    """Return the number after the last `####`, without commas and currency; None if there is
    none."""
    _, marker, tail = answer.rpartition("####")
    match = _GOLD.fullmatch(tail.strip().removesuffix("."))
    if not marker or not match:
        return None
    return match[0].replace(",", "").replace("$", "").removeprefix("+")


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and value of each row. Raises DataError."""
    if path.suffix == ".parquet":
        reading = read_rows(path, ("question", "answer"), lambda number, row: (number, row))
        if reading.skipped:
            first = reading.skipped[0]
            raise DataError(f"{path.parent / first.where}: {first.reason} ({first.detail})")
        for number, row in reading.records:
            yield f"{path}[{number}]", row
        return
    read = read_lines(path, lambda number, value: (number, value), Limits(line_bytes=MAX_LINE))
    if read.skipped:
        first = read.skipped[0]
        raise DataError(f"{path.parent / first.where}: {first.reason} ({first.detail})")
    for number, row in read.records:
        yield f"{path}:{number}", row


BENCHMARK = numeric_benchmark("gsm8k", "GSM8K", load)

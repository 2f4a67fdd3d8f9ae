"""A file of questions as a benchmark: `bench run my.jsonl --scorer my_scorer.py`.

A line is an object with `id`, `question` and `answer`, the gold one (a text or a number; with a
scorer it may be missing). The scorer sees all other fields as `item.about`. A scorer is a Python
file with a function `score(item, answer)` (see `loopline.bench.text_answers`); it runs in the
bench's own process. A Parquet file has these fields as columns; rows without an `id` get their row
number, from 0. Either may be a file in a Hub data set, `hf://OWNER/NAME/FILE`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from loopline.agents.records import JsonObject
from loopline.bench.benchmark import Benchmark
from loopline.bench.datasets import Dataset, Item, Request, sample
from loopline.bench.errors import DataError, UsageError
from loopline.bench.origins import FileStamp, Origin
from loopline.bench.output import Manifest
from loopline.bench.text_answers import EXACT_RULE, SCORE_RULE, Score, scored_benchmark
from loopline.trainers.data.json_files import SUFFIXES, Reading, Unreadable, read_lines
from loopline.trainers.data.parquet_rows import read_rows

SPLIT = "test"
MAX_ID_CHARS = 200
_FIELDS = ("id", "question", "answer")
_PARQUET = ".parquet"
ENDINGS = (*(f".jsonl{suffix}" for suffix in SUFFIXES), _PARQUET)
_STRANGE = re.compile(r"[^A-Za-z0-9_-]+")


def is_question_file(target: str) -> bool:
    """Whether a command line names a file of questions. Only the suffix decides, so a file in the
    current folder can never shadow a benchmark's name."""
    return target.endswith(ENDINGS)


def file_benchmark(data: FileStamp, scorer: FileStamp | None) -> Benchmark:
    """Return the benchmark of these files. They are read when needed; a file that has changed since
    then is refused, with its name."""

    def load(request: Request) -> Dataset:
        return _load(data.file, request, gold_needed=scorer is None)

    def score() -> Score | None:
        return None if scorer is None else load_scorer(scorer)

    def require(manifest: Manifest) -> None:
        # The manifest has the questions, so a deleted file does not matter.
        if data.file.exists() and data.changed:
            raise UsageError(_changed_message(data) + ", or start a new benchmark")
        score()

    rule = EXACT_RULE
    if scorer is not None:
        rule = f"{scorer.file.name} (sha256 {scorer.sha256[:12]}): {SCORE_RULE}"
    return scored_benchmark(
        _STRANGE.sub("-", data.file.name.partition(".")[0]).strip("-") or "questions",
        data.file.name,
        load,
        score,
        rule,
        require=require,
        origin=Origin(data=data, scorer=scorer),
    )


def load_scorer(stamp: FileStamp) -> Score:
    """Return the function `score` of a file, in the version that was stamped. Raises UsageError
    that names the file and, if known, the line."""
    path = stamp.file
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"--scorer {path}: cannot be read ({error.strerror or error}); put the file there, or "
            "score with another one: bench rescore DIRECTORY --scorer FILE"
        ) from error
    digest = hashlib.sha256(source).hexdigest()
    if digest != stamp.sha256:
        raise UsageError(
            _changed_message(stamp) + ", or score every answer with the new one: "
            f"bench rescore DIRECTORY --scorer {path.name}"
        )
    # Not an import: Python may reuse stale bytecode of a file that was edited within a second.
    module = ModuleType(f"_scorer_{digest[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # Dataclasses look up their module in `sys.modules`.
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        raise UsageError(
            f"{path}:{lines[-1] if lines else 1}: the scorer cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
    return _score_of(module, path)


def _score_of(module: ModuleType, path: Path) -> Score:
    score = getattr(module, "score", None)
    if not callable(score):
        raise UsageError(f"{path} has no function score(item, answer)")
    code = getattr(score, "__code__", None)
    place = f"{path}:{code.co_firstlineno}" if code else str(path)
    if inspect.iscoroutinefunction(score):
        raise UsageError(f"{place}: score must be a plain function, not an async one")
    try:
        inspect.signature(score).bind(None, "")
    except TypeError as error:
        raise UsageError(f"{place}: score must take (item, answer): {error}") from error
    return cast(Score, score)


def _changed_message(stamp: FileStamp) -> str:
    return (
        f"{stamp.path}: the file has changed since the benchmark started (then sha256 "
        f"{stamp.sha256[:12]}…); restore it"
    )


def _load(path: Path, request: Request, *, gold_needed: bool) -> Dataset:
    if request.data is not None:
        raise UsageError(f"--data has no effect here: the questions come from {path.name}")
    if request.split != SPLIT:
        raise UsageError(f"--split: {path.name} has no {request.split!r}; it has: {SPLIT}")
    if path.suffix == _PARQUET:
        reading = _read_parquet(path, gold_needed)
    else:
        reading = read_lines(path, lambda number, value: (number, _item(value, gold_needed)))
    if reading.skipped:
        first = reading.skipped[0]
        detail = f" ({first.detail})" if first.detail else ""
        raise DataError(f"{path.parent / first.where}: {first.reason}{detail}")
    lines: dict[str, int] = {}
    for number, item in reading.records:
        if (earlier := lines.setdefault(item.id, number)) != number:
            raise DataError(f"{path}:{number}: the id {item.id!r} is already in line {earlier}")
    items = [item for _, item in reading.records]
    if not items:
        raise DataError(f"{path}: the file contains no questions")
    selected_items = sample(items, request.samples, request.seed)
    name = path.name.partition(".")[0]
    return Dataset(name, SPLIT, selected_items, len(items), path.name)


def _read_parquet(path: Path, gold_needed: bool) -> Reading[tuple[int, Item]]:
    """Read a Parquet file. Raises DataError for a file without a column `question`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: not a Parquet file, or a damaged one ({error})") from error
    if "question" not in columns:
        names = ", ".join(map(repr, columns[:20]))
        raise DataError(f"{path} has no column `question`; it has {names}")

    def build(number: int, row: Any) -> tuple[int, Item]:
        # Dates and similar values become strings: an item is JSON.
        plain = cast(JsonObject, json.loads(json.dumps(row, default=str)))
        return number, _item({"id": number, **plain}, gold_needed)

    return read_rows(path, columns, build)


def _item(value: Any, gold_needed: bool) -> Item:
    """Raises Unreadable."""
    if not isinstance(value, dict):
        raise Unreadable("expected an object with id, question and answer")
    row = cast(JsonObject, value)
    name = row.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int) or not str(name).strip():
        raise Unreadable("`id` must be a string or an integer")
    if len(str(name)) > MAX_ID_CHARS:
        raise Unreadable(f"`id` has more than {MAX_ID_CHARS} characters")
    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise Unreadable("`question` must be a non-empty string")
    return Item(
        id=str(name),
        question=question,
        gold=_gold(row.get("answer"), gold_needed),
        about={field: row[field] for field in row if field not in _FIELDS},
    )


def _gold(answer: object, needed: bool) -> str:
    if answer is None and not needed:
        return ""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise Unreadable(
            "`answer` must be a string or a number",
            "put other data for the scorer into another field, which it reads from item.about",
        )
    if needed and not str(answer).strip():
        raise Unreadable("`answer` must be a non-empty string")
    return str(answer)

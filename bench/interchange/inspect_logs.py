"""Reads inspect logs (`.eval`): zip archives of JSON documents.

    header.json              status, task, model, results; written when the evaluation ends
    _journal/start.json      task and model; exists for interrupted evaluations, too
    samples/ID_epoch_N.json  one document per sample and epoch

The documents are those of `inspect_ai.log.EvalLog`, version 2.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, cast

from loopline.bench.errors import DataError
from loopline.bench.interchange.archive import MAX_MEMBER_BYTES, Archive
from loopline.bench.interchange.evaluations import (
    MAX_SAMPLES,
    Evaluation,
    Sample,
    Tokens,
    number_at,
    object_at,
    require_distinct,
    text_at,
)
from loopline.trainers.data.json_files import Unreadable, parse

VERSION = 2
_HEADER, _START, _SAMPLES = "header.json", "_journal/start.json", "samples/"
_WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Values of scores given as words, as in `inspect_ai.scorer.value_to_float`."""
_MEAN_REDUCERS = {"mean"}


def read_inspect_log(path: Path, member_bytes: int = MAX_MEMBER_BYTES) -> Evaluation:
    """Read a log. Raises DataError if the file is not a log, is damaged, or has a sample of more
    than `member_bytes` decompressed bytes."""
    with Archive(path, member_bytes) as archive:
        start = next((name for name in (_HEADER, _START) if name in archive), None)
        if start is None:
            raise DataError(
                f"{path}: not an inspect log: it contains neither {_HEADER} nor {_START}"
            )
        header = _document(path, archive, start)
        if header.get("version") != VERSION:
            raise DataError(
                f"{path}: an inspect log of version {header.get('version')!r:.20}; this program "
                f"reads version {VERSION}: convert it with `inspect log convert --to eval`"
            )
        names = archive.names(_SAMPLES)
        if len(names) > MAX_SAMPLES:
            raise DataError(f"{path}: {len(names):,} samples are more than {MAX_SAMPLES:,}")
        samples = tuple(_sample(path, name, _document(path, archive, name)) for name in names)
    require_distinct(path, samples)
    evaluation = object_at(header, "eval")
    return Evaluation(
        path=path,
        format="inspect",
        task=text_at(evaluation, "task", path.stem),
        model=text_at(evaluation, "model", "model"),
        created=_seconds_of(text_at(evaluation, "created")),
        samples=samples,
        notices=_notices(path, header),
    )


def _document(path: Path, archive: Archive, name: str) -> dict[str, Any]:
    """Parse a document. Raises DataError. inspect writes a missing score as NaN."""
    try:
        value = parse(archive.read(name), constants=lambda constant: None)
    except Unreadable as error:
        raise DataError(f"{path}: {name}: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: {name}: expected a JSON object")
    return cast("dict[str, Any]", value)


def _notices(path: Path, header: dict[str, Any]) -> tuple[str, ...]:
    notices: list[str] = []
    status = text_at(header, "status", "started")
    if status != "success":
        notices.append(f"{path}: the evaluation did not finish: its status is {status}")
    reducers = object_at(header, "eval", "config").get("epochs_reducer")
    names = cast("list[object]", reducers) if isinstance(reducers, list) else []
    others = sorted({str(name) for name in names} - _MEAN_REDUCERS)
    if others:
        notices.append(
            f"{path}: inspect reduced epochs with {', '.join(others)}; here a question counts with "
            "the mean of its epochs"
        )
    return tuple(notices)


def _sample(path: Path, name: str, document: dict[str, Any]) -> Sample:
    """Build a sample. Raises DataError."""
    key, epoch = document.get("id"), document.get("epoch")
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise DataError(f"{path}: {name}: `id` should be a string or an integer")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
        raise DataError(f"{path}: {name}: `epoch` should be an integer from 1")
    output, error = object_at(document, "output"), object_at(document, "error")
    return Sample(
        id=str(key),
        epoch=epoch,
        question=_text(document.get("input")),
        target=_text(document.get("target")),
        output=text_at(output, "completion") or None,
        scores=_scores(object_at(document, "scores")),
        tokens={
            model: Tokens(_count(usage, "input_tokens"), _count(usage, "output_tokens"))
            for model, usage in object_at(document, "model_usage").items()
        },
        seconds=max(0.0, number_at(document, "total_time")),
        error=text_at(error, "message", "error") if error else None,
    )


def _scores(scores: dict[str, Any]) -> dict[str, float]:
    """Return the numeric scores; entries of a score that is an object are named `scorer/entry`."""
    numbers: dict[str, float] = {}
    for name, score in scores.items():
        value = object_at(score).get("value")
        entries = (
            {f"{name}/{key}": entry for key, entry in cast("dict[str, object]", value).items()}
            if isinstance(value, dict)
            else {name: value}
        )
        for key, entry in entries.items():
            number = _number(entry)
            if number is not None:
                numbers[key] = number
    return numbers


def _number(value: object) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value) if abs(value) < 1e300 else None
    if not isinstance(value, str):
        return None
    if value in _WORDS or value.lower() in _WORDS:
        return _WORDS.get(value, _WORDS.get(value.lower()))
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < 1e300 else None


def _text(value: object) -> str:
    """Return an input or target as text: from a text, messages, or several targets."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    parts: list[str] = []
    for part in cast("list[object]", value):
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict):
            message = cast("dict[str, Any]", part)
            content = message.get("content")
            text = content if isinstance(content, str) else _contents(content)
            parts.append(f"{text_at(message, 'role', 'user')}: {text}")
    return "\n".join(parts)


def _contents(content: object) -> str:
    """Return the texts of a message with several parts; a part that is not text yields its kind."""
    parts = cast("list[object]", content) if isinstance(content, list) else []
    return " ".join(text_at(part, "text") or f"[{text_at(part, 'type')}]" for part in parts)


def _count(usage: object, key: str) -> int:
    return max(0, int(number_at(usage, key)))


def _seconds_of(moment: str) -> float:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError):
        return 0.0

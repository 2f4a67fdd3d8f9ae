"""Reads lm-eval samples (`samples_TASK_DATE.jsonl`, written by `--log_samples`), one line per
document and filter. `results_DATE.json` in the same folder has the model's name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from loopline.bench.errors import DataError
from loopline.bench.interchange.evaluations import (
    MAX_SAMPLES,
    Evaluation,
    Sample,
    number_at,
    object_at,
    require_distinct,
    text_at,
)
from loopline.trainers.data.json_files import Limits, Unreadable, read_document, read_lines

LIMITS = Limits(file_bytes=8 * 2**30, line_bytes=32 * 2**20)
_DATE = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
_NAME = re.compile(rf"samples_(?P<task>.+?)(?:_(?P<date>{_DATE}))?\.jsonl")
_FIELDS = frozenset({
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
    "doc_hash", "prompt_hash", "target_hash",
})  # fmt: skip
NO_FILTER = "none"


def read_lm_eval_samples(path: Path, limits: Limits = LIMITS) -> Evaluation:
    """Read the samples. Raises DataError that names the first line that is not a sample."""
    reading = read_lines(path, _sample, limits)
    if reading.skipped:
        first = reading.skipped[0]
        detail = f" ({first.detail})" if first.detail else ""
        raise DataError(f"{path.parent / first.where}: {first.reason}{detail}")
    if len(reading.records) > MAX_SAMPLES:
        raise DataError(f"{path}: {len(reading.records):,} samples are more than {MAX_SAMPLES:,}")
    samples = _joined(path, reading.records)
    require_distinct(path, samples)
    name = _NAME.fullmatch(path.name)
    task = name["task"] if name else path.stem
    results, notices = _results(path, name["date"] if name else None)
    higher = object_at(results, "higher_is_better", task)
    lower = {metric for metric, is_higher in higher.items() if is_higher is False}
    scorers = {scorer for sample in samples for scorer in sample.scores}
    return Evaluation(
        path=path,
        format="lm-eval",
        task=task,
        model=text_at(results, "model_name")
        or text_at(object_at(results, "config"), "model", "model"),
        created=number_at(results, "date"),
        samples=samples,
        lower_is_better=frozenset(
            scorer for scorer in scorers if scorer.partition(",")[0] in lower
        ),
        notices=notices,
    )


def _results(path: Path, date: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read the results of the same evaluation, and describe any fault of their file."""
    results_path = path.parent / f"results_{date}.json"
    if date is None or not results_path.is_file():
        return {}, ()
    try:
        return object_at(read_document(results_path)), ()
    except Unreadable as error:
        return {}, (f"{results_path}: skipped, so the model has no name: {error}",)


def _sample(number: int, value: Any) -> Sample:
    """Parse a line. Raises Unreadable."""
    if not isinstance(value, dict):
        raise Unreadable("expected an object with doc_id, doc, target and filtered_resps")
    row = cast("dict[str, Any]", value)
    key = row.get("doc_id")
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise Unreadable("`doc_id` should be an integer or a string", "is it a file of samples?")
    if "doc" not in row:
        raise Unreadable("`doc` is missing", "is it a file of samples?")
    listed = row.get("metrics")
    names = (
        [str(name) for name in cast("list[object]", listed)]
        if isinstance(listed, list)
        else [name for name in row if name not in _FIELDS]
    )
    suffix = text_at(row, "filter", NO_FILTER)
    suffix = "" if suffix == NO_FILTER else f",{suffix}"
    scores = {
        f"{name}{suffix}": float(score)
        for name in names
        if isinstance(score := row.get(name), bool | int | float)
    }
    return Sample(
        id=str(key),
        epoch=1,
        question=_as_text(row["doc"]),
        target=_as_text(row.get("target", "")),
        output=_response(row.get("filtered_resps")),
        scores=scores,
    )


def _joined(path: Path, lines: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Merge each document's lines, one per filter, into one sample."""
    by_id: dict[str, Sample] = {}
    for line in lines:
        earlier = by_id.setdefault(line.id, line)
        if earlier is line:
            continue
        if earlier.question != line.question:
            raise DataError(
                f"{path}: the document {line.id} has two contents; does the file contain two tasks?"
            )
        twice = earlier.scores.keys() & line.scores.keys()
        if twice:
            raise DataError(
                f"{path}: the document {line.id} has two {min(twice)} scores; its samples can't be "
                "paired"
            )
        by_id[line.id] = replace(earlier, scores={**earlier.scores, **line.scores})
    samples = tuple(by_id.values())
    # The document's own id, if all have one: its index changes with --limit and --samples.
    own_ids = [_own_id(sample.question) for sample in samples]
    if None in own_ids or len(set(own_ids)) < len(samples):
        return samples
    return tuple(
        replace(sample, id=str(own_id)) for sample, own_id in zip(samples, own_ids, strict=True)
    )


def _own_id(document: str) -> str | None:
    try:
        own_id = object_at(json.loads(document)).get("id")
    except ValueError:
        return None
    return str(own_id) if isinstance(own_id, str | int) and not isinstance(own_id, bool) else None


def _response(responses: object) -> str | None:
    """Return the first answer; None for multiple choice, where the model writes no text."""
    first: object = responses
    while isinstance(first, list) and first:
        first = cast("list[object]", first)[0]
    return first if isinstance(first, str) else None


def _as_text(value: object) -> str:
    """Return a text unchanged and anything else as JSON, so that equal values have equal texts."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)

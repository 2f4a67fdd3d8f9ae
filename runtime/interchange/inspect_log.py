"""Writes logs of inspect (`.eval`, version 2): the JSON documents that `inspect_ai.log` reads.

inspect itself is not needed: a log is a zip archive of a header, a summary of all samples, and one
document per sample. A test reads these logs with inspect's own reader.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loopline.workers.atomic_files import atomic_file

VERSION = 2
_SUMMARY = (
    "id", "epoch", "input", "target", "metadata", "scores", "model_usage", "role_usage",
    "started_at", "completed_at", "total_time", "uuid",
)  # fmt: skip
_INPUT_CHARS = 2000
"""Maximum characters of an input in the summaries, which viewers load completely."""


@dataclass(frozen=True)
class LogSample:
    """One attempt at one question."""

    id: str
    epoch: int
    """Number of the epoch, from 1."""
    input: str | Sequence[Mapping[str, Any]]
    """Input as text, or as messages with `role` and `content`."""
    target: str
    messages: Sequence[Mapping[str, Any]]
    """Whole conversation, including the input's messages."""
    model: str
    completion: str
    scores: Mapping[str, Any]
    """Scores by scorer: `C`, `I`, or a number."""
    started: float
    """Start time in seconds since 1970."""
    seconds: float
    uuid: str
    tokens: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Input and output tokens by model."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None
    answer: str = ""

    def document(self) -> dict[str, Any]:
        """Return the sample in inspect's format, without the optional fields."""
        error = {"message": self.error, "traceback": "", "traceback_ansi": ""}
        message = {"role": "assistant", "content": self.completion, "source": "generate"}
        return {
            "id": self.id,
            "epoch": self.epoch,
            "input": self.input,
            "target": self.target,
            "messages": list(self.messages),
            "output": {
                "model": self.model,
                "choices": [{"message": message, "stop_reason": "stop"}],
                "completion": self.completion,
            },
            "scores": {
                name: {"value": value, "answer": self.answer, "history": []}
                for name, value in self.scores.items()
            },
            "metadata": dict(self.metadata),
            "store": {},
            "events": [],
            "model_usage": {
                model: {
                    "input_tokens": prompt,
                    "output_tokens": completion,
                    "total_tokens": prompt + completion,
                }
                for model, (prompt, completion) in self.tokens.items()
            },
            "role_usage": {},
            "started_at": moment(self.started),
            "completed_at": moment(self.started + self.seconds),
            "total_time": round(self.seconds, 3),
            "working_time": round(self.seconds, 3),
            "uuid": self.uuid,
            "error_retries": [],
            "attachments": {},
            **({} if self.error is None else {"error": error}),
        }


@dataclass(frozen=True)
class LogHeader:
    """Facts about all samples of a log."""

    id: str
    task: str
    model: str
    created: float
    complete: bool
    dataset: str
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Mean score by scorer."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def specification(self, ids: Sequence[str], epochs: int) -> dict[str, Any]:
        """Return the object that inspect calls `eval`."""
        return {
            "eval_id": self.id,
            "run_id": self.id,
            "created": moment(self.created),
            "task": self.task,
            "task_id": self.id,
            "task_version": 0,
            "dataset": {
                "name": self.dataset,
                "samples": len(ids),
                "sample_ids": list(ids),
                "shuffled": False,
            },
            "model": self.model,
            "model_args": {},
            "config": {"epochs": epochs},
            "packages": {"loopline": version("loopline")},
            "metadata": dict(self.metadata),
        }


def write_inspect_log(path: Path, header: LogHeader, samples: Iterable[LogSample]) -> int:
    """Write a log and return the number of samples. The file is complete or absent. Only one sample
    and a summary of all are in memory at a time. Raises OSError, and ValueError for two samples
    with the same id and epoch."""
    summaries: list[dict[str, Any]] = []
    ids: dict[str, None] = {}
    names: set[str] = set()
    usage: dict[str, dict[str, int]] = {}
    ended = header.created
    with (
        atomic_file(path) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for sample in samples:
            document = sample.document()
            # inspect looks a sample up by this name, regardless of the id's characters.
            name = f"samples/{sample.id}_epoch_{sample.epoch}.json"
            if name in names:
                raise ValueError(f"two samples are named {name}")
            names.add(name)
            archive.writestr(name, _json(document))
            ids[sample.id] = None
            ended = max(ended, sample.started + sample.seconds)
            for model, counts in document["model_usage"].items():
                total = usage.setdefault(model, dict.fromkeys(counts, 0))
                for key, count in counts.items():
                    total[key] += count
            summaries.append(_summary(document))
        epochs = max((summary["epoch"] for summary in summaries), default=1)
        specification = header.specification(tuple(ids), epochs)
        start = {"version": VERSION, "eval": specification, "plan": {"name": "plan", "steps": []}}
        archive.writestr("_journal/start.json", _json(start))
        archive.writestr("summaries.json", _json(summaries))
        archive.writestr(
            "header.json",
            _json(
                {
                    **start,
                    "status": "success" if header.complete else "cancelled",
                    "results": {
                        "total_samples": len(summaries),
                        "completed_samples": len(summaries),
                        "scores": [
                            {
                                "name": name,
                                "scorer": name,
                                "metrics": {"mean": {"name": "mean", "value": value}},
                            }
                            for name, value in header.metrics.items()
                        ],
                    },
                    "stats": {
                        "started_at": moment(header.created),
                        "completed_at": moment(ended),
                        "model_usage": usage,
                    },
                }
            ),
        )
    return len(summaries)


def moment(seconds: float) -> str:
    """Format seconds since 1970 as inspect does."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _summary(document: dict[str, Any]) -> dict[str, Any]:
    summary = {key: document[key] for key in _SUMMARY}
    if isinstance(document["input"], str):
        summary["input"] = document["input"][:_INPUT_CHARS]
    if "error" in document:
        summary["error"] = document["error"]["message"]
    return {
        **summary,
        "retries": 0,
        "completed": True,
        "message_count": len(document["messages"]),
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")

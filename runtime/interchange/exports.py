"""`runtime export`: recorded runs in the formats that trainers and evaluation tools read.

trl         sft.jsonl            prompt and completion of answered runs as messages, and the tools
                                 that a client offered as JSON
            preferences.jsonl    prompt, chosen, rejected, tools: runs of one task with different
                                 rewards
hf          data/train-00000-of-00001.parquet and README.md: a data set in the Hub's format
inspect     runs.eval            a log of inspect, one sample per run
verifiers   traces.jsonl         one episode per run, as `verifiers.v1` reads and replays it
            rollouts.jsonl       prompt, completion, answer, reward, task, info
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loopline.agents.tools.json_arguments import parse_arguments
from loopline.runtime.errors import InputError, UserError
from loopline.runtime.interchange.inspect_log import LogHeader, LogSample, write_inspect_log
from loopline.runtime.interchange.recorded_runs import RecordedRun, recorded_runs
from loopline.runtime.interchange.verifiers_traces import episode_of
from loopline.workers.atomic_files import atomic_file, write_atomic
from loopline.workers.store.records import Skipped

_BATCH = 1000
_MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("tool_calls", pa.string()),
        ("tool_call_id", pa.string()),
        ("name", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("task_id", pa.string()),
        ("workflow", pa.string()),
        ("environment", pa.string()),
        ("instance", pa.string()),
        ("prompt", pa.list_(_MESSAGE)),
        ("completion", pa.list_(_MESSAGE)),
        ("tools", pa.string()),
        ("outcome", pa.string()),
        ("reward", pa.float64()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("cost_micro_dollars", pa.int64()),
        ("created", pa.float64()),
        ("ended", pa.float64()),
        ("tags", pa.string()),
    ]
)
"""Columns of `hf`; instances, tags, tools and their calls are JSON."""
_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
---

# Runs of Loopline

A row is a run: its messages, its answer, how it ended, what it earned, what it cost.
"""


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    files: dict[Path, int]
    """Number of rows by file."""
    runs: int
    left_out: int
    """Number of runs without an answer, which the format can't represent."""
    skipped: tuple[Skipped, ...]
    """Records of the store that could not be read."""


class _Runs:
    """The runs of a store, which are counted during reading."""

    def __init__(self, store: Path, workflow: str | None) -> None:
        self._store, self._workflow = store, workflow
        self.count = self.left_out = 0
        self.skipped: list[Skipped] = []

    def __iter__(self) -> Iterator[RecordedRun]:
        for run in recorded_runs(self._store, self._workflow, self.skipped):
            self.count += 1
            yield run

    def answered(self) -> Iterator[RecordedRun]:
        for run in self:
            if run.ended_with_an_answer:
                yield run
            else:
                self.left_out += 1


def export(store: Path, form: str, output: Path, workflow: str | None = None) -> Exported:
    """Export the runs of a store. Each file is complete or absent; earlier files are replaced.
    Raises InputError for a store without matching runs, UserError if a file can't be written."""
    runs = _Runs(store, workflow)
    try:
        output.mkdir(parents=True, exist_ok=True)
        files = WRITERS[form](runs, output)
    except OSError as error:
        raise UserError(
            f"{error.filename or output}: cannot be written ({error.strerror or error})",
            hint="free some space, or give another --output.",
        ) from error
    if runs.count == 0:
        what = f"no run of workflow {workflow!r}" if workflow else "no run"
        raise InputError(f"{store} has {what} that can be read")
    return Exported(files, runs.count, runs.left_out, tuple(runs.skipped))


def _trl(runs: _Runs, output: Path) -> dict[Path, int]:
    files: dict[Path, int] = {}
    by_task: dict[str, list[tuple[float, str, RecordedRun]]] = defaultdict(list)
    with _lines(output / "sft.jsonl", files) as write:
        for run in runs.answered():
            write({"prompt": run.prompt, "completion": run.completion, "tools": _tools(run)})
            if run.reward is not None:
                by_task[run.task_id].append((run.reward, run.trajectory.run.id, run))
    with _lines(output / "preferences.jsonl", files) as write:
        for pair in _preferences(by_task.values()):
            write(pair)
    return files


def _preferences(
    tasks: Iterable[list[tuple[float, str, RecordedRun]]],
) -> Iterator[dict[str, Any]]:
    """Pair the best run of a task with the worst, the second with the second to last, and so on, as
    long as the rewards differ. No run is in two pairs."""
    for task in tasks:
        ranked = sorted(task, key=lambda entry: entry[:2])
        for worse, better in zip(
            ranked[: len(ranked) // 2], reversed(ranked[len(ranked) // 2 :]), strict=False
        ):
            if better[0] > worse[0] and better[2].completion != worse[2].completion:
                yield {
                    "prompt": better[2].prompt,
                    "chosen": better[2].completion,
                    "rejected": worse[2].completion,
                    "tools": _tools(better[2]),
                }


def _tools(run: RecordedRun) -> str:
    """Return the tools as JSON, as TRL reads them: their parameters have no common type."""
    return json.dumps(run.tools)


def _verifiers(runs: _Runs, output: Path) -> dict[Path, int]:
    files: dict[Path, int] = {}
    number = 0
    with (
        _lines(output / "traces.jsonl", files) as write_episode,
        _lines(output / "rollouts.jsonl", files) as write,
    ):
        for run in runs:
            write_episode(episode_of(run))
            if not run.ended_with_an_answer:
                runs.left_out += 1
                continue
            info = run.info
            write(
                {
                    "example_id": number,
                    "prompt": run.prompt,
                    "completion": run.completion,
                    # A record never contains the reference answer.
                    "answer": "",
                    "reward": run.reward,
                    "task": info["environment"],
                    "info": info,
                }
            )
            number += 1
    return files


def _inspect(runs: _Runs, output: Path) -> dict[Path, int]:
    path = output / "runs.eval"
    header = LogHeader(
        id="loopline-runs",
        task="runs",
        model="loopline/runs",
        created=0.0,
        complete=True,
        dataset="recorded runs",
    )
    return {path: write_inspect_log(path, header, map(_sample, runs))}


def _sample(run: RecordedRun) -> LogSample:
    trajectory = run.trajectory
    return LogSample(
        id=trajectory.run.id,
        epoch=1,
        input=[{**_inspect_message(message), "source": "input"} for message in run.prompt],
        target="",
        messages=[_inspect_message(message) for message in (*run.prompt, *run.completion)],
        model=f"loopline/{trajectory.run.workflow}",
        completion=trajectory.answer or "",
        scores={} if run.reward is None else {"reward": run.reward},
        started=trajectory.run.created,
        seconds=max(0.0, trajectory.ended - trajectory.run.created),
        uuid=trajectory.run.id,
        tokens=run.tokens,
        metadata=run.info,
        error=None
        if run.ended_with_an_answer
        else f"{trajectory.outcome}: {trajectory.reason or 'no answer'}",
        answer=(trajectory.answer or "")[:200],
    )


def _inspect_message(message: dict[str, Any]) -> dict[str, Any]:
    """Convert a message of the Chat Completions API to inspect's format."""
    fields: dict[str, Any] = {"role": message["role"], "content": message["content"]}
    if not isinstance(fields["content"], str):
        fields["content"] = [
            part if part["type"] == "text" else {"type": "image", "image": part["image_url"]["url"]}
            for part in fields["content"]
        ]
    if calls := message.get("tool_calls"):
        fields["tool_calls"] = [_inspect_call(call) for call in calls]
    if "tool_call_id" in message:
        fields["tool_call_id"] = message["tool_call_id"]
    return fields


def _inspect_call(call: dict[str, Any]) -> dict[str, Any]:
    written = call["function"]["arguments"]
    arguments, error = parse_arguments(written)
    fields = {"id": call["id"], "function": call["function"]["name"], "type": "function"}
    if arguments is None:
        return {**fields, "arguments": {}, "parse_error": error or written}
    return {**fields, "arguments": arguments}


def _hf(runs: _Runs, output: Path) -> dict[Path, int]:
    path = output / "data" / "train-00000-of-00001.parquet"
    path.parent.mkdir(exist_ok=True)
    count = 0
    with atomic_file(path) as partial, pq.ParquetWriter(partial, SCHEMA) as writer:
        batch: list[dict[str, Any]] = []
        for run in runs:
            batch.append(_row(run))
            count += 1
            if len(batch) == _BATCH:
                writer.write_table(pa.Table.from_pylist(batch, SCHEMA))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, SCHEMA))
    card = output / "README.md"
    write_atomic(card, _CARD)
    return {path: count, card: 0}


def _row(run: RecordedRun) -> dict[str, Any]:
    info, tokens = run.info, run.tokens.values()
    return {
        **{name: info[name] for name in SCHEMA.names if name in info},
        "instance": json.dumps(info["instance"]),
        "tags": json.dumps(info["tags"]),
        "tools": _tools(run),
        "prompt": [_flat(message) for message in run.prompt],
        "completion": [_flat(message) for message in run.completion],
        "reward": run.reward,
        "prompt_tokens": sum(prompt for prompt, _ in tokens),
        "completion_tokens": sum(completion for _, completion in tokens),
    }


def _flat(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its tool calls as JSON, since their arguments have no common type."""
    calls, content = message.get("tool_calls"), message["content"]
    return {
        **message,
        "content": content if isinstance(content, str) else json.dumps(content),
        "tool_calls": None if calls is None else json.dumps(calls),
    }


WRITERS: dict[str, Callable[[_Runs, Path], dict[Path, int]]] = {
    "trl": _trl,
    "hf": _hf,
    "inspect": _inspect,
    "verifiers": _verifiers,
}


@contextmanager
def _lines(path: Path, files: dict[Path, int]) -> Generator[Callable[[Any], None]]:
    """Write a file of JSON lines, and record its number of rows in `files` at the end."""
    files[path] = 0
    with atomic_file(path) as partial, partial.open("w", encoding="utf-8") as file:

        def write(row: Any) -> None:
            file.write(json.dumps(row) + "\n")
            files[path] += 1

        yield write

"""Samples of recorded runs, packed for training: `samples/<name>` of a store.

Training reads the tokens and rewards of many runs. A record's JSON contains them as text, among
much else. A compaction writes them again, as numbers, to a file with the name and the row groups of
the table's file. If that file is missing, readers use the records, and the next compaction writes
it again.

A sample is MessagePack: a map of the record's fields that `SampledRun` has
(`loopline.trainers.data.samples`). `policy`, `sampling` and `task` are their JSON as bytes. Token
ids and log-probabilities are also bytes: a letter of Python's `struct` (`H`, `i`: two-byte and
four-byte ids; `d`: float64), and the little-endian numbers. A run without a reward has no sample,
since it is judged by its whole record, nor does a run with a value that training can't read in this
form.
"""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from loopline.agents.records import RECORDS_VERSION, Outcome
from loopline.workers.atomic_files import atomic_file
from loopline.workers.store.files import (
    Damaged,
    batches_of,
    groups_that_may_hold,
    open_parquet,
    parquet_files,
    read_group,
)

log = structlog.get_logger("loopline.workers.store")

FOLDER = "samples"
SAMPLE = "sample"
SMALLEST_BYTES = 2**20
"""Smallest table file that gets samples; smaller ones are soon compacted again."""
FORMAT = b"1"
"""Version of the sample format. Files in another format are not read, but written again."""
KEYS = ("run_id", "generation", "entry", "workflow")
BODIES = ("trajectory", "sha256")
_DIGEST = "digest"
_SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("generation", pa.int32()),
        ("entry", pa.string()),
        ("workflow", pa.string()),
        (SAMPLE, pa.binary()),
        (_DIGEST, pa.binary(32)),
    ],
    metadata={"sample_format": FORMAT.decode()},
)


class _Call(msgspec.Struct):
    id: str
    text: str
    finish_reason: str
    trainable: bool
    policy: msgspec.Raw
    sampling: msgspec.Raw
    prompt_ids: list[int] = []
    output_ids: list[int] = []
    logprobs: list[float] = []
    grammar_masked: bool = False


class _Candidate(msgspec.Struct, omit_defaults=True):
    calls: list[_Call] = []
    reward_parts: dict[str, float] = {}


class _Step(msgspec.Struct, omit_defaults=True):
    turn: int
    agent: str
    branch: int = 0
    candidates: list[_Candidate] = []
    selected: int = 0


class _Run(msgspec.Struct, omit_defaults=True):
    id: str
    workflow: str
    task: msgspec.Raw
    version: int = RECORDS_VERSION
    parent: str | None = None
    options: dict[str, Any] = {}
    prompts: dict[str, str] = {}
    tags: dict[str, str] = {}


class _Record(msgspec.Struct, omit_defaults=True):
    run: _Run
    steps: list[_Step]
    outcome: Outcome
    version: int = RECORDS_VERSION
    reason: str | None = None
    team_reward: float | None = None
    agent_rewards: dict[str, float] = {}


class _Proposal(Protocol):
    @property
    def reward_parts(self) -> dict[str, float]: ...


class _Turn(Protocol):
    @property
    def candidates(self) -> Sequence[_Proposal]: ...
    @property
    def selected(self) -> int: ...


class _Played(Protocol):
    @property
    def steps(self) -> Sequence[_Turn]: ...
    @property
    def team_reward(self) -> float | None: ...
    @property
    def agent_rewards(self) -> dict[str, float]: ...


def has_rewards(run: _Played) -> bool:
    """Whether a recorded run has any reward; a run without one has to be judged as a whole."""
    if run.team_reward is not None or run.agent_rewards:
        return True
    steps = [step for step in run.steps if step.candidates]
    if not all(0 <= step.selected < len(step.candidates) for step in steps):
        return False
    return any(step.candidates[step.selected].reward_parts for step in steps)


def _ints(values: Sequence[int]) -> bytes:
    letter = "H" if 0 <= min(values, default=0) <= max(values, default=0) < 2**16 else "i"
    return struct.pack(f"<c{len(values)}{letter}", letter.encode(), *values)


def _floats(values: Sequence[float]) -> bytes:
    return struct.pack(f"<c{len(values)}d", b"d", *values)


_PACKED: dict[str, Callable[[Any], bytes]] = {
    "policy": bytes,
    "sampling": bytes,
    "prompt_ids": _ints,
    "output_ids": _ints,
    "logprobs": _floats,
}
_DECODER = msgspec.json.Decoder(_Record)
_ENCODER = msgspec.msgpack.Encoder()


def pack_sample(body: bytes) -> bytes | None:
    """The sample of a recorded trajectory; None if training needs its JSON."""
    try:
        record = _DECODER.decode(body)
        if {record.version, record.run.version} != {RECORDS_VERSION} or not has_rewards(record):
            return None
        for step in record.steps:
            for candidate in step.candidates:
                for call in candidate.calls:
                    for name, pack in _PACKED.items():
                        setattr(call, name, pack(getattr(call, name)))
        setattr(record.run, "task", bytes(record.run.task))  # noqa: B010 - it changes its type
        return _ENCODER.encode(record)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, struct.error):
        return None


def unpack_bytes(value: msgspec.Raw) -> bytes | None:
    """The bytes of a sample's field; None if the field is JSON."""
    packed = bytes(value)
    begin = _HEADS.get(packed[0])
    return None if begin is None else packed[begin:]


def unpack_numbers(value: msgspec.Raw) -> tuple[Any, ...] | None:
    """The token ids or log-probabilities of a sample's field; None if the field is JSON."""
    packed = bytes(value)
    begin = _HEADS.get(packed[0])
    if begin is None:
        return None
    return _reader(packed[begin], len(packed) - begin - 1)(packed, begin + 1)


@lru_cache(maxsize=4_096)
def _reader(letter: int, size: int) -> Callable[[bytes, int], tuple[Any, ...]]:
    """Cached unpacker of numbers of this size in bytes. `struct` itself caches only a hundred."""
    number = chr(letter)
    return struct.Struct(f"<{size // struct.calcsize('<' + number)}{number}").unpack_from


_HEADS = {0xC4: 2, 0xC5: 3, 0xC6: 5}
"""Length of the header of MessagePack bytes, by its first byte, with which no JSON starts."""


def refresh_samples(table: Path, stop: Callable[[], bool]) -> None:
    """Write missing samples of files, and remove those of removed files. The caller holds
    `compaction_lock`. Raises OSError."""
    folder = table.parent / FOLDER
    paths = parquet_files(table)
    if folder.is_dir():
        names = {path.name for path in paths}
        for left in folder.iterdir():
            if left.name not in names:
                left.unlink()
    for path in paths:
        if stop():
            return
        try:
            if path.stat().st_size < SMALLEST_BYTES or _open(folder / path.name) is not None:
                continue
            if not folder.is_dir():
                folder.mkdir()
                stat = table.stat()
                if stat.st_uid != os.geteuid():
                    os.chown(folder, stat.st_uid, stat.st_gid)
            _write(path, folder / path.name, stop)
        except _Stopped:
            return
        except (Damaged, FileNotFoundError) as error:
            log.warning("samples of a file not written", file=path.name, why=str(error))


class _Stopped(Exception):
    """The writer has to stop now."""


def _write(path: Path, target: Path, stop: Callable[[], bool]) -> None:
    """Write the samples of a file. Raises `_Stopped`, after which no file is left."""
    file = open_parquet(path, checked=True)
    repeated: Any = ["workflow"]
    searched: Any = [*KEYS]
    with (
        atomic_file(target) as partial,
        pq.ParquetWriter(
            str(partial),
            _SCHEMA,
            compression="zstd",
            use_dictionary=repeated,
            write_statistics=searched,
            write_page_checksum=True,
        ) as writer,
    ):
        for group in range(file.metadata.num_row_groups):
            if stop():
                raise _Stopped
            rows = read_group(path, file, group, (*KEYS, *BODIES))
            bodies = rows["trajectory"].cast("binary").to_pylist()
            samples = [
                # A record that was changed gets no sample, so it gets no new hash.
                pack_sample(body) if hashlib.sha256(body).hexdigest() == written else None
                for body, written in zip(bodies, rows["sha256"].to_pylist(), strict=True)
            ]
            packed: dict[str, Any] = {name: rows[name] for name in KEYS}
            packed[SAMPLE] = samples
            packed[_DIGEST] = [sample and hashlib.sha256(sample).digest() for sample in samples]
            writer.write_table(pa.table(packed, schema=_SCHEMA), row_group_size=rows.num_rows)


def _open(path: Path) -> Any:
    """Open a file of samples; None if it is missing or in another format. Raises `Damaged`."""
    try:
        file = open_parquet(path)
    except FileNotFoundError:
        return None
    metadata = file.schema_arrow.metadata or {}
    return file if metadata.get(b"sample_format") == FORMAT else None


def check_samples(path: Path) -> None:
    """Read all samples of a file. Raises `Damaged` if one has been changed."""
    file = open_parquet(path, checked=True)
    for group in range(file.metadata.num_row_groups):
        rows = read_group(path, file, group, (SAMPLE, _DIGEST))
        for sample, digest in zip(rows[SAMPLE].to_pylist(), rows[_DIGEST].to_pylist(), strict=True):
            if sample is not None and hashlib.sha256(sample).digest() != digest:
                raise Damaged(path, f"the hash of a sample in row group {group} differs")


class SampleGroup(NamedTuple):
    """A row group of the table."""

    path: Path
    first: int
    """Number of its first row in the file."""
    rows: Any
    """`KEYS`, and `BODIES` if a run has no sample."""
    samples: Sequence[bytes | None] | None
    """Samples with verified hashes; None for a file without samples."""


def sample_groups(
    path: Path, damaged: list[Damaged], workflow: str | None
) -> Iterator[SampleGroup]:
    """The row groups of a table file, only of a workflow if given. In place of damaged samples, the
    records are read. Raises as `batches_of`."""
    columns = (*KEYS, *BODIES)
    samples = path.parent.parent / FOLDER / path.name
    table = open_parquet(path)
    try:
        file = _open(samples)
        if file is not None and _group_rows(file) != _group_rows(table):
            raise Damaged(samples, "its row groups differ from those of the table's file")
    except Damaged as error:
        _log_damaged(error)
        file = None
    if file is None:
        for where, first, rows in batches_of(path, columns, damaged, workflow):
            yield SampleGroup(where, first, rows, None)
        return
    first = 0
    matching = range(table.metadata.num_row_groups)
    if workflow is not None:
        matching = set(groups_that_may_hold(file.metadata, "workflow", workflow))
    for group, number in enumerate(_group_rows(file)):
        if group in matching:
            try:
                rows, packed = _sampled(samples, file, path, table, group, workflow)
                yield SampleGroup(path, first, rows, packed)
            except Damaged as error:
                damaged.append(error)
        first += number


def _sampled(
    samples: Path, file: Any, path: Path, table: Any, group: int, workflow: str | None
) -> tuple[Any, Sequence[bytes | None]]:
    """Keys and samples of a row group, with the records if a sample is missing. Raises `Damaged`
    for the table's file."""
    packed: list[bytes | None]
    try:
        rows = read_group(samples, file, group)
        packed = rows[SAMPLE].to_pylist()
        digests = rows[_DIGEST].to_pylist()
    except Damaged as error:
        _log_damaged(error)
        rows = read_group(path, table, group, (*KEYS, *BODIES))
        packed = [None] * rows.num_rows
    else:
        for number, (sample, digest) in enumerate(zip(packed, digests, strict=True)):
            if sample is not None and hashlib.sha256(sample).digest() != digest:
                packed[number] = None
        rows = rows.select(KEYS)
        if None in packed:
            bodies = read_group(path, table, group, BODIES)
            for name in BODIES:
                rows = rows.append_column(name, bodies[name])
    if workflow is not None and set(rows["workflow"].to_pylist()) != {workflow}:
        numbers = [
            number for number, name in enumerate(rows["workflow"].to_pylist()) if name == workflow
        ]
        rows = rows.take(numbers)
        packed = [packed[number] for number in numbers]
    return rows, packed


def _group_rows(file: Any) -> list[int]:
    metadata = file.metadata
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _log_damaged(error: Damaged) -> None:
    log.warning(
        "damaged samples: records are read instead; `runtime store verify` removes them",
        file=str(error.path),
        why=error.why,
    )

"""A data set: the five sets of examples with their card, in a folder.

The folder contains `<set>.parquet` for each set, and `card.json`. It appears complete or not at
all, and rows that are read back are compared with the hash on its card.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline.agents.records import JsonObject, Record
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.trainers.data.examples import (
    SETS,
    DroppedRow,
    Example,
    SetName,
    examples_of,
    prompts_of,
)
from loopline.trainers.data.sources import Source
from loopline.trainers.data.trajectories import Trajectory
from loopline.trainers.errors import UnreadableData
from loopline.workers.atomic_files import atomic_folder

CARD = "card.json"
VERSION = 1
FORMING_OPTIONS = frozenset({"tool_style", "constrained", "observation_chars"})
"""Options of `umi` that determine the texts."""


class SourceCard(Record):
    """The contribution of one source."""

    name: str
    settings: JsonObject
    trajectories: int
    instructions: int
    repeated: int
    """Trajectories that equal another one of their instruction; they yield no rows."""
    skipped: dict[str, int]
    """Number of records that yielded no trajectory, by reason."""
    skipped_where: tuple[str, ...]
    """Names of these records, each with its reason."""


class SetCard(Record):
    """The contents of one set."""

    examples: dict[str, int]
    """Rows by source."""
    instructions: dict[str, int]
    """Number of different instructions among them, by source."""
    dropped: dict[str, dict[str, int]]
    """Rows that were not made, by source and reason."""


class Card(Record):
    """Description of a data set, with everything that determines it."""

    version: int
    sha256: str
    """SHA-256 of all rows in order: see `content_hash`."""
    sources: tuple[SourceCard, ...]
    options: JsonObject
    """Options of `umi` with which the roles see exactly these texts."""
    prompts: dict[str, str]
    """Hashes of the prompt files, by name."""
    sets: dict[SetName, SetCard]


Sets = Mapping[SetName, tuple[Example, ...]]


@dataclass(frozen=True)
class DataSet:
    """The card and the rows that it describes."""

    card: Card
    sets: Sets


def content_hash(sets: Sets) -> str:
    """SHA-256 over the sets in the order of `SETS`: the name of each, then each row as one line of
    JSON with sorted keys, in UTF-8."""
    digest = hashlib.sha256()
    for name in SETS:
        digest.update(f"{name}\n".encode())
        for row in sets[name]:
            line = json.dumps(row.model_dump(), sort_keys=True, ensure_ascii=True)
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def build(
    sources: Iterable[Source],
    options: UmiOptions,
    on_progress: Callable[[int], None] = lambda trajectories: None,
) -> DataSet:
    """Make every set from every source's trajectories.

    Rows are in the order of source, instruction, trajectory and step, so that neither the order of
    the sources nor that of their records changes the hash. Raises `UnreadableData` if a set is
    empty.
    """
    sorted_sources = sorted(
        sources, key=lambda entry: (entry.name, json.dumps(entry.settings, sort_keys=True))
    )
    rows: dict[SetName, list[Example]] = {name: [] for name in SETS}
    dropped: dict[SetName, dict[str, Counter[str]]] = {name: defaultdict(Counter) for name in SETS}
    unique_trajectories, repeated = _without_repeats(sorted_sources)
    for count, trajectory in enumerate(unique_trajectories, start=1):
        for result in examples_of(trajectory, options):
            if isinstance(result, DroppedRow):
                dropped[result.set][result.source][result.reason] += 1
            else:
                rows[result[0]].append(result[1])
        on_progress(count)
    sets: Sets = {name: tuple(result) for name, result in rows.items()}
    card = Card(
        version=VERSION,
        sha256=content_hash(sets),
        sources=tuple(_source_card(source, repeated[source.name]) for source in sorted_sources),
        options=options.model_dump(mode="json", include=set(FORMING_OPTIONS)),
        prompts={entry.file: entry.hash for entry in prompts_of(options).values()},
        sets={name: _set_card(sets[name], dropped[name]) for name in SETS},
    )
    _require_rows(card)
    return DataSet(card, sets)


def write(data_set: DataSet, folder: Path) -> None:
    """Write a new folder, complete or not at all. Raises `UnreadableData` if it exists, OSError if
    the disk refuses."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_free(folder)
    schema = _schema()
    with atomic_folder(folder) as part:
        for name in SETS:
            rows = [row.model_dump() for row in data_set.sets[name]]
            table = pa.Table.from_pylist(rows, schema=schema)
            pq.write_table(table, part / f"{name}.parquet", compression="zstd")
        (part / CARD).write_text(data_set.card.model_dump_json(indent=1) + "\n")


def require_free(folder: Path) -> None:
    """Raise `UnreadableData` if the path for new data exists."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UnreadableData(
            f"{folder} exists, and existing data is never overwritten; choose another folder or "
            "remove it"
        )


def read(folder: Path) -> DataSet:
    """The data set of a folder. Raises `UnreadableData` if there is none, or if its rows do not
    match its card."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        card = Card.model_validate_json((folder / CARD).read_bytes())
        if card.version != VERSION:
            raise UnreadableData(
                f"{folder} has version {card.version}, but this program reads version {VERSION}: "
                "create it again"
            )
        sets: dict[SetName, tuple[Example, ...]] = {}
        for name in SETS:
            table: Any = pq.read_table(folder / f"{name}.parquet")
            sets[name] = tuple(Example.model_validate(row) for row in table.to_pylist())
    except FileNotFoundError as error:
        raise UnreadableData(
            f"{folder} is not a data set: {error.filename or error} is missing; create one with "
            "`train data`"
        ) from error
    except (OSError, ValidationError, pa.ArrowException) as error:
        why = str(error).splitlines()[0]
        raise UnreadableData(f"the data set {folder} is damaged: {why}; create it again") from error
    sets_hash = content_hash(sets)
    if sets_hash != card.sha256:
        raise UnreadableData(
            f"the data set {folder} is damaged: its rows have the hash {sets_hash[:12]}, its card "
            f"states {card.sha256[:12]}; create it again"
        )
    return DataSet(card, sets)


def _without_repeats(sources: Sequence[Source]) -> tuple[list[Trajectory], Counter[str]]:
    """All trajectories in order, and for each source the number left out because they equal an
    earlier one."""
    trajectories: list[Trajectory] = []
    repeated: Counter[str] = Counter()
    keys: set[tuple[str, str, str]] = set()
    for trajectory in sorted(
        (candidate for source in sources for candidate in source.trajectories),
        key=lambda candidate: (candidate.source, candidate.instruction_id, candidate.id),
    ):
        key = (trajectory.instruction_id, trajectory.instruction, repr(trajectory.steps))
        if key in keys:
            repeated[trajectory.source] += 1
        else:
            keys.add(key)
            trajectories.append(trajectory)
    return trajectories, repeated


def _source_card(source: Source, repeated: int) -> SourceCard:
    return SourceCard(
        name=source.name,
        settings=source.settings,
        trajectories=len(source.trajectories),
        instructions=len({entry.instruction_id for entry in source.trajectories}),
        repeated=repeated,
        skipped=dict(sorted(Counter(entry.reason for entry in source.skipped).items())),
        skipped_where=tuple(
            f"{entry.where}: {entry.reason}{f' ({entry.detail})' if entry.detail else ''}"
            for entry in source.skipped
        ),
    )


def _set_card(rows: Sequence[Example], dropped: Mapping[str, Counter[str]]) -> SetCard:
    return SetCard(
        examples=dict(sorted(Counter(row.source for row in rows).items())),
        instructions=dict(
            sorted(
                Counter(
                    source for source, _ in {(r.source, r.instruction_id) for r in rows}
                ).items()
            )
        ),
        dropped={
            source: dict(sorted(reasons.items())) for source, reasons in sorted(dropped.items())
        },
    )


def _require_rows(card: Card) -> None:
    empty: list[SetName] = [name for name in SETS if not card.sets[name].examples]
    if not empty:
        return
    why: Counter[str] = Counter()
    for source in card.sources:
        why.update(source.skipped)
    for reasons in card.sets[empty[0]].dropped.values():
        why.update(reasons)
    listed = "; ".join(f"{reason}: {count}" for reason, count in why.most_common())
    trajectories = sum(source.trajectories for source in card.sources)
    raise UnreadableData(
        f"no row is left for {', '.join(empty)} of {trajectories} "
        f"trajectories{f' ({listed})' if listed else ''}: use more trajectories, or other sources"
    )


def _schema() -> Any:
    import pyarrow as pa

    span = pa.struct([("text", pa.string()), ("learned", pa.bool_())])
    return pa.schema(
        [
            ("source", pa.string()),
            ("trajectory_id", pa.string()),
            ("step", pa.int32()),
            ("instruction_id", pa.string()),
            ("system", pa.string()),
            ("input", pa.string()),
            ("target", pa.list_(span)),
        ],
    )

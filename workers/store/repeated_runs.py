"""Finds the runs that have several rows in a table, without reading rows that can't be repeated."""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loopline.workers.store.files import Place, read_batches


class _Ids(NamedTuple):
    """Ids of a row group, and their bounds."""

    least: str
    greatest: str
    rising: bool
    """Whether each id is greater than the one before it, as in a compacted file."""
    ids: Any


def newest_of_several(folder: Path) -> dict[str, tuple[int, str]]:
    """Generation and entry of the valid row, for each run with several rows."""
    import pyarrow as pa
    import pyarrow.compute

    compute: Any = pyarrow.compute
    groups = [
        _bounds(batch["run_id"].combine_chunks(), compute)
        for _, _, batch in read_batches(folder, ("run_id",), [])
        if batch.num_rows
    ]
    doubtful = [group.ids for group in _overlapping(sorted(groups, key=lambda group: group[:2]))]
    if not doubtful:
        return {}
    ids = pa.table({"run_id": pa.chunked_array(doubtful)})
    # On one thread: building and merging a hash table of a million groups per thread takes three
    # times as long.
    counts: Any = ids.group_by("run_id", use_threads=False).aggregate([([], "count_all")])
    several = counts.filter(compute.greater(counts["count_all"], 1))["run_id"]
    if not len(several):
        return {}
    batches = [batch for _, _, batch in read_batches(folder, ("run_id", "generation", "entry"), [])]
    keys = pa.concat_tables(batches, promote_options="permissive")
    rows: list[dict[str, Any]] = keys.filter(
        compute.is_in(keys["run_id"], several.combine_chunks())
    ).to_pylist()
    newest: dict[str, tuple[int, str]] = {}
    for row in sorted(rows, key=lambda row: (row["generation"], Place.of(row["entry"]))):
        newest[row["run_id"]] = row["generation"], row["entry"]
    return newest


def _bounds(ids: Any, compute: Any) -> _Ids:
    if not ids.null_count and compute.all(compute.less(ids[:-1], ids[1:])).as_py() is not False:
        return _Ids(ids[0].as_py(), ids[-1].as_py(), True, ids)
    bounds = compute.min_max(ids).as_py()
    return _Ids(bounds["min"] or "", bounds["max"] or "", False, ids)


def _overlapping(groups: Sequence[_Ids]) -> Iterator[_Ids]:
    """Groups, from a sequence sorted by bounds, that may contain a run twice, or a run of another
    group."""
    furthest = ""
    for number, group in enumerate(groups):
        after = groups[number + 1].least if number + 1 < len(groups) else None
        reached = after is not None and after <= group.greatest
        if reached or not group.rising or (number and group.least <= furthest):
            yield group
        furthest = max(furthest, group.greatest)

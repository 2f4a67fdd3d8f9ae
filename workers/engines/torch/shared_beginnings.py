"""Beginnings that rows of a batch share: if many rows start with the same role's prompt, a pass
reads its keys and values once for all of them, not once for each.

All groups share the same number of tokens, so that the rest of all rows starts in one column. The
number is chosen to leave the fewest columns to read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import common_prefix
from loopline.workers.engines.local.row import Row

LEAST_SAVED = 1024
"""Saved columns below which the two parts cost more than they save."""
LEAST_SHARE = 0.25
"""Smallest share of all columns read that is worth saving."""
MOST_GROUPS = 8
"""Each group costs some operations in every layer."""
RENEW = 4
"""A new length is chosen when the rows that came or went are a quarter (one in RENEW) of all
rows."""


@dataclass(frozen=True)
class Group:
    """Rows with the same beginning. `source` is the place of one of them, `places` [rows] are all;
    None if these are all rows of the batch."""

    source: int
    places: torch.Tensor | None


@dataclass(frozen=True)
class Shared:
    """The first `length` tokens of every row are those of its group."""

    length: int
    groups: tuple[Group, ...]


@dataclass(eq=False)
class _Beginning:
    """The beginning of a group, and its rows."""

    adapter: AdapterVersion | None
    ids: list[int]
    rows: set[Row] = field(default_factory=set[Row])


class SharedBeginnings:
    """Shared beginnings of the rows of one batch, from pass to pass. Owned by one thread."""

    def __init__(self) -> None:
        self._order: list[Row] = []
        """The rows that `_shared` refers to, ordered by their places."""
        self._shared: Shared | None = None
        self._length = 0
        self._beginnings: list[_Beginning] = []
        self._changes = 0
        """Rows that came or went since the length was chosen."""

    def of(self, rows: Sequence[Row]) -> Shared | None:
        """The beginnings that these rows share, each with the keys and values of its first `fed`
        tokens in its place; None if sharing is not worth it."""
        if rows != self._order:
            self._follow(rows)
            self._order = list(rows)
        return self._shared

    def forget(self, rows: Collection[Row]) -> None:
        """Forget rows that have left the batch."""
        self._order, self._shared = [], None
        for beginning in self._beginnings:
            before = len(beginning.rows)
            beginning.rows.difference_update(rows)
            self._changes += before - len(beginning.rows)
        self._beginnings = [beginning for beginning in self._beginnings if beginning.rows]

    def _follow(self, rows: Sequence[Row]) -> None:
        grouped = {row for beginning in self._beginnings for row in beginning.rows}
        new_rows = [row for row in rows if row not in grouped]
        self._changes += len(new_rows)
        if self._changes * RENEW >= len(rows) or any(row.fed < self._length for row in new_rows):
            self._changes, self._beginnings, new_rows = 0, [], list(rows)
            most = min(row.fed for row in rows)
            self._length = best_length([(row.job.adapter, row.ids) for row in rows], most)
        for row in new_rows:
            self._beginning_of(row).rows.add(row)
        self._shared = self._grouped(rows)

    def _beginning_of(self, row: Row) -> _Beginning:
        ids, adapter = row.ids[: self._length], row.job.adapter
        for beginning in self._beginnings:
            if beginning.adapter is adapter and beginning.ids == ids:
                return beginning
        self._beginnings.append(_Beginning(adapter, ids))
        return self._beginnings[-1]

    def _grouped(self, rows: Sequence[Row]) -> Shared | None:
        count, length = len(self._beginnings), self._length
        saved = length * (len(rows) - count)
        least = max(LEAST_SAVED, LEAST_SHARE * sum(row.fed for row in rows))
        if count > MOST_GROUPS or saved < least:
            return None
        if count == 1:
            return Shared(length, (Group(0, None),))
        places = [
            [place for place, row in enumerate(rows) if row in beginning.rows]
            for beginning in self._beginnings
        ]
        return Shared(length, tuple(Group(group[0], torch.tensor(group)) for group in places))


def best_length(sequences: Sequence[tuple[AdapterVersion | None, Sequence[int]]], most: int) -> int:
    """The best number of tokens, at most `most`, of these beginnings to share: of n sequences with
    g different beginnings of that length, n - g times the length need not be read."""
    by_adapter: dict[AdapterVersion | None, list[list[int]]] = {}
    for adapter, ids in sequences:
        by_adapter.setdefault(adapter, []).append(list(ids[:most]))
    lengths: list[int] = []
    for beginnings in by_adapter.values():
        # After sorting, the sequences that share most are adjacent.
        beginnings.sort()
        neighbours = pairwise(beginnings)
        lengths += [common_prefix(first, second) for first, second in neighbours]
    # At the i-th longest length, i + 1 sequences share their beginning with an earlier one.
    lengths.sort(reverse=True)
    savings = [(length * (index + 1), length) for index, length in enumerate(lengths)]
    return max(savings, default=(0, 0))[1]

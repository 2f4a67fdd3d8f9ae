"""Batches as a pure function of the rows, the seed and the step's number: resuming needs only that
number.

Rows are shuffled again in every epoch. Steps are made in groups: the rows of a group are sorted by
length before they are split into batches, which reduces padding; then the order of the batches is
shuffled. A batch is split into micro-batches that go through the model one by one; several
processes share the rows of each micro-batch.

Rows are not packed into one sequence: with this sorting, a tenth of the tokens of planner rows is
padding (48 rows per step), which is the most that packing could save. `bench training` compares
with a trainer that packs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from loopline.trainers.data.token_rows import TokenRow

GROUP = 8
"""Steps per group."""
LENGTH_STEP = 16
"""Lengths are rounded up to a multiple of this: fewer shapes, so that freed memory fits the next
micro-batch."""


@dataclass(frozen=True)
class MicroBatch:
    """Rows padded on the right; both [rows, length]."""

    ids: list[list[int]]
    learned: list[list[bool]]
    lengths: list[int]
    """Tokens of each row, without padding."""

    @property
    def tokens(self) -> int:
        """Number of tokens, padding included."""
        return len(self.ids) * len(self.ids[0])


@dataclass(frozen=True)
class Batch:
    """One step's rows."""

    micro_batches: tuple[MicroBatch, ...]
    padding: int
    """Padding tokens."""
    learned: int
    """Tokens over which the loss is averaged."""

    @property
    def tokens(self) -> int:
        """Number of tokens, padding included."""
        return sum(micro_batch.tokens for micro_batch in self.micro_batches)


def batches(
    rows: Sequence[TokenRow], size: int, micro_batch_tokens: int, seed: int, *, start: int
) -> Iterator[Batch]:
    """Yield the batch of step `start` and of each later step, endlessly."""
    group = start // GROUP
    while True:
        selected_rows = _rows_between(rows, seed, group * GROUP * size, GROUP * size)
        selected_rows.sort(key=lambda row: len(row.ids))
        cut = [selected_rows[at : at + size] for at in range(0, len(selected_rows), size)]
        random.Random(f"{seed}:group:{group}").shuffle(cut)
        for offset, part in enumerate(cut):
            if group * GROUP + offset >= start:
                yield batch_of(part, micro_batch_tokens)
        group += 1


def batch_of(rows: Sequence[TokenRow], micro_batch_tokens: int) -> Batch:
    """A batch of rows that are sorted by length, shortest first."""
    micro_batches: list[MicroBatch] = []
    waiting: list[TokenRow] = []
    for row in rows:
        if waiting and _padded_length(row) * (len(waiting) + 1) > micro_batch_tokens:
            micro_batches.append(_micro_batch(waiting))
            waiting = []
        waiting.append(row)
    micro_batches.append(_micro_batch(waiting))
    tokens = sum(micro_batch.tokens for micro_batch in micro_batches)
    return Batch(
        micro_batches=tuple(micro_batches),
        padding=tokens - sum(len(row.ids) for row in rows),
        learned=sum(sum(row.learned) for row in rows),
    )


def share_of(batch: Batch, index: int, count: int) -> tuple[MicroBatch, ...]:
    """The share that process `index` of `count` puts through its model: every `count`th row of each
    micro-batch.

    All processes have the same number of micro-batches, since each may need the others' parts of
    the weights. If a micro-batch has too few rows, a row is repeated, from which nothing is
    learned.
    """
    if count == 1:
        return batch.micro_batches
    return tuple(
        MicroBatch(
            micro_batch.ids[index::count],
            micro_batch.learned[index::count],
            micro_batch.lengths[index::count],
        )
        if index < len(micro_batch.ids)
        else MicroBatch(micro_batch.ids[:1], [[False] * len(micro_batch.ids[0])], [0])
        for micro_batch in batch.micro_batches
    )


def _rows_between(rows: Sequence[TokenRow], seed: int, begin: int, count: int) -> list[TokenRow]:
    """Rows `begin` to `begin + count` of all epochs, in sequence."""
    drawn: list[TokenRow] = []
    while len(drawn) < count:
        epoch, at = divmod(begin + len(drawn), len(rows))
        order = _order(len(rows), seed, epoch)
        drawn += [rows[number] for number in order[at : at + count - len(drawn)]]
    return drawn


@lru_cache(maxsize=2)
def _order(rows: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(rows))
    random.Random(f"{seed}:epoch:{epoch}").shuffle(order)
    return tuple(order)


def _padded_length(row: TokenRow) -> int:
    return -(-len(row.ids) // LENGTH_STEP) * LENGTH_STEP


def _micro_batch(rows: Sequence[TokenRow]) -> MicroBatch:
    length = _padded_length(rows[-1])
    # Padding is never seen: attention is causal, and padding is not learned.
    return MicroBatch(
        ids=[[*row.ids, *[0] * (length - len(row.ids))] for row in rows],
        learned=[[*row.learned, *[False] * (length - len(row.learned))] for row in rows],
        lengths=[len(row.ids) for row in rows],
    )

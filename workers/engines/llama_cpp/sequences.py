"""Sequences of a llama.cpp context, with the tokens and cells of each.

A cell contains the keys and values of one token at one position. Sequences with a common prefix
share its cells, so a role's prompt is computed once for all requests that start with it. A finished
sequence stays for a while, for the next turn of its conversation or the next request of its role,
and is evicted when its cells or its place are needed.

A prefix is shared only within one key (the adapter and its version): the same tokens have other
keys and values under another adapter (llama.cpp#26207).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loopline.workers.engines.local.backend import common_prefix


class SequenceMemory(Protocol):
    """The operations of a context on its cells; see `LlamaContext`."""

    def copy(self, source: int, target: int, length: int) -> None: ...

    def drop(self, sequence: int) -> None: ...


@dataclass(eq=False)
class LlamaSequence:
    """One sequence, and its tokens computed so far."""

    number: int
    key: Hashable
    tokens: list[int] = field(default_factory=list[int])
    cells: list[int] = field(default_factory=list[int])
    """Names of its cells, one for each token; equal names are the same cell."""


class Sequences:
    """Up to `in_use` growing sequences and `idle` finished ones, in `cells` cells."""

    def __init__(self, memory: SequenceMemory, *, cells: int, in_use: int, idle: int) -> None:
        self._memory = memory
        self._capacity = cells
        self._places = in_use + idle
        self._idle_places = idle
        self._free = list(range(in_use + idle))
        self._in_use: list[LlamaSequence] = []
        self._kept: list[LlamaSequence] = []
        """Finished sequences, least recently used first."""
        self._names = itertools.count()
        self._uses: Counter[int] = Counter()

    @property
    def free_cells(self) -> int:
        """Number of cells that no sequence uses."""
        return self._capacity - len(self._uses)

    @property
    def spare_cells(self) -> int:
        """Number of cells that no running sequence uses: the room after evicting all finished
        ones."""
        return self._capacity - len({cell for sequence in self._in_use for cell in sequence.cells})

    def in_use(self, length: Callable[[int], int]) -> dict[str, int]:
        """Running sequences, and inconsistencies: places without an owner, cells whose count is
        wrong, tokens in the context (`length` of a sequence, including the one for scores) that
        differ in number from those recorded here."""
        sequences = [*self._in_use, *self._kept]
        noted = {sequence.number: len(sequence.tokens) for sequence in sequences}
        cells = Counter(cell for sequence in sequences for cell in sequence.cells)
        return {
            "sequences": len(self._in_use),
            "lost places": self._places - len(self._free) - len(sequences),
            "miscounted cells": len((cells - self._uses) + (self._uses - cells)),
            "stray tokens": sum(
                abs(length(number) - noted.get(number, 0)) for number in range(self._places + 1)
            ),
        }

    def longest_prefix(self, key: Hashable, ids: Sequence[int]) -> tuple[LlamaSequence | None, int]:
        """The sequence with the longest computed prefix of `ids`, and the prefix's length."""
        best: LlamaSequence | None = None
        most = 0
        for sequence in (*self._in_use, *self._kept):
            if sequence.key == key and (same := common_prefix(sequence.tokens, ids)) > most:
                best, most = sequence, same
        return best, most

    def open(
        self, key: Hashable, source: LlamaSequence | None = None, length: int = 0
    ) -> LlamaSequence:
        """Start a sequence with the first `length` tokens of `source`."""
        if source is not None and source in self._kept:
            self._kept.remove(source)
            self._kept.append(source)
        sequence = LlamaSequence(self._free.pop(), key)
        self._in_use.append(sequence)
        if source is not None and length:
            sequence.tokens = source.tokens[:length]
            sequence.cells = source.cells[:length]
            self._uses.update(sequence.cells)
            self._memory.copy(source.number, sequence.number, length)
        return sequence

    def extend(self, sequence: LlamaSequence, tokens: Sequence[int]) -> None:
        """Record that these tokens were computed after the sequence's earlier ones."""
        sequence.tokens.extend(tokens)
        cells = list(itertools.islice(self._names, len(tokens)))
        sequence.cells.extend(cells)
        self._uses.update(cells)

    def finish(self, sequence: LlamaSequence) -> None:
        """Keep a finished sequence, for prompts that share its beginning."""
        self._in_use.remove(sequence)
        self._kept.append(sequence)
        while len(self._kept) > self._idle_places:
            self.evict_oldest()

    def drop(self, sequence: LlamaSequence) -> None:
        """Release a sequence at once."""
        (self._kept if sequence in self._kept else self._in_use).remove(sequence)
        self._memory.drop(sequence.number)
        self._uses.subtract(sequence.cells)
        for cell in sequence.cells:
            if not self._uses[cell]:
                del self._uses[cell]
        self._free.append(sequence.number)

    def evict_oldest(self) -> bool:
        """Drop the least recently used kept sequence; False if there is none."""
        if not self._kept:
            return False
        self.drop(self._kept[0])
        return True

    def forget(self, key: Hashable) -> None:
        """Drop every kept sequence of this key."""
        for sequence in [sequence for sequence in self._kept if sequence.key == key]:
            self.drop(sequence)

"""Keys and values of all rows in one allocation per layer, written in place.

transformers' own cache reallocates each layer for every token: with many rows, that takes several
times as long as everything else. Here a row's tokens are in the columns from 0 on, so a token's
column is its position; the mask hides all columns after a row's last token. Owned by one thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from loopline.workers.engines.torch.shared_beginnings import Shared

ROWS = 4
COLUMNS = 64
"""Rows and columns are allocated in multiples of these."""

GROWTH = 1.5
"""Smallest factor by which rows or columns grow when the allocation grows: all allocations on the
way to a size then sum up to at most four times that size. With a new allocation for every block,
they would sum up to that size times half the number of blocks; and a GPU's allocator, which can't
reuse a smaller tensor's memory for a larger one, would reserve all of it."""

FAR_TOO_LARGE = 4
"""The allocation shrinks when it has this many times the cells that are needed."""

States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of one sequence's tokens, for each layer: [heads, tokens, head size]."""


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of one row in a packed pass."""

    begin: int
    """Position of the piece's first token in the pass."""
    place: int
    """Place of the piece's row in the allocation."""
    start: int
    """Number of the row's tokens that were computed before."""
    count: int
    mask: torch.Tensor | None
    """The summand of its scores [count, start + count]; None if the piece starts its row or is a
    single token."""

    @property
    def end(self) -> int:
        return self.begin + self.count


@dataclass(frozen=True)
class Packed:
    """A pass over the next token of each row in the places below `running`, followed by pieces of
    other rows. Each token is a row of the pass, with one token."""

    places: torch.Tensor
    """The row of the allocation for each token [tokens, 1]."""
    height: int
    """Rows of the allocation that the pass sees."""
    running: int
    longest: int
    """Columns that the running rows see."""
    pieces: tuple[Piece, ...]
    wanted: torch.Tensor
    """The tokens after which logits are needed [wanted]."""


@dataclass
class _Window:
    """The places that the next forward pass writes and sees; one window for all layers."""

    rows: int = 0
    columns: int = 0
    """Columns of the allocation."""
    first: int = 0
    """Row of the allocation for the first row of the pass."""
    places: tuple[torch.Tensor, ...] = ()
    """Rows [rows of the pass, 1] and columns [rows of the pass, tokens] to write to."""
    before: int = 0
    """Number of columns written before, if it is the same in every row."""
    visible: int = 0
    """Columns from 0 on that the pass sees."""
    shared: Shared | None = None
    """Beginnings that the pass reads once for several rows."""
    packed: Packed | None = None


class _Layer(CacheLayerMixin):
    """Keys and values [rows, heads, columns, head size] of one layer."""

    def __init__(self, window: _Window) -> None:
        super().__init__()
        self._window = window
        self._like: list[torch.Tensor] = []
        """Empty keys and values, without rows and columns, as templates for allocations."""

    @property
    def held(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    @property
    def whole(self) -> bool:
        """Whether both are allocated."""
        return self.keys is not None and self.values is not None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Learn heads, sizes, type and device from the first pass."""
        # New tensors: an empty slice would keep the whole first prompt in memory forever.
        self._like = [
            states.new_empty((0, states.shape[1], 0, states.shape[3]))
            for states in (key_states, value_states)
        ]
        self.is_initialized = True

    def allocate(self) -> None:
        """Reallocate to the window's rows and columns; the common part is copied, the rest is
        zero."""
        if self.is_initialized:
            like_keys, like_values = self._like
            self.keys = self._reallocate(self.keys, like_keys)
            self.values = self._reallocate(self.values, like_values)

    def _reallocate(self, old: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
        rows, columns = self._window.rows, self._window.columns
        new = like.new_zeros((rows, like.shape[1], columns, like.shape[3]))
        if old is not None:
            height, width = min(rows, old.shape[0]), min(columns, old.shape[2])
            new[:height, :, :width] = old[:height, :, :width]
        return new

    def free(self) -> None:
        """Release the memory; the shapes stay known."""
        self.keys = self.values = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the pass's states [rows, heads, tokens, head size]; returns everything that it
        sees."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.allocate()
        window = self._window
        height = key_states.shape[0] if window.packed is None else window.packed.height
        rows = slice(window.first, window.first + height)
        keys, values = self.held
        keys.transpose(1, 2).index_put_(window.places, key_states.transpose(1, 2))
        values.transpose(1, 2).index_put_(window.places, value_states.transpose(1, 2))
        return keys[rows, :, : window.visible], values[rows, :, : window.visible]

    # Called by transformers when it builds a mask itself.

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._window.visible, 0

    def get_seq_length(self) -> int:
        return self._window.before

    def get_max_length(self) -> int:
        return -1


class KVCache(Cache):
    """The cache into which a transformers model writes its keys and values."""

    def __init__(self, most_rows: int, most_columns: int) -> None:
        """Create an empty cache, which exceeds these rows and columns only if it must."""
        self._most_rows, self._most_columns = most_rows, most_columns
        self._window = _Window()
        self._all_layers: list[_Layer] = []
        super().__init__(layer_class_to_replicate=self._new_layer)  # pyright: ignore[reportArgumentType]

    def _new_layer(self) -> _Layer:
        self._all_layers.append(_Layer(self._window))
        return self._all_layers[-1]

    def fit(self, rows: int, columns: int) -> None:
        """Allocate these rows and columns, but not many times as many. Raises RuntimeError if
        memory runs out; then only some layers are allocated."""
        window = self._window
        if any(layer.is_initialized and not layer.whole for layer in self._all_layers):
            # The first allocations happen during the first pass. If memory ran out there, some
            # layers may now have more than is needed.
            self.free()
        rows, columns = _round_up(rows, ROWS), _round_up(columns, COLUMNS)
        enough = rows <= window.rows and columns <= window.columns
        if enough and window.rows * window.columns <= FAR_TOO_LARGE * rows * columns:
            return
        if not enough:
            larger = (
                _grow(window.rows, rows, self._most_rows, ROWS),
                _grow(window.columns, columns, self._most_columns, COLUMNS),
            )
            if larger != (rows, columns) and self._try_to_allocate(*larger):
                return
        self._allocate(rows, columns)

    def _try_to_allocate(self, rows: int, columns: int) -> bool:
        try:
            self._allocate(rows, columns)
        except RuntimeError:  # out of memory: the minimum may still fit
            return False
        return True

    def _allocate(self, rows: int, columns: int) -> None:
        self._window.rows, self._window.columns = rows, columns
        for layer in self._all_layers:
            layer.allocate()
        if self._all_layers and torch.cuda.is_available():
            # No later allocation fits into the memory of the replaced tensors.
            torch.cuda.empty_cache()

    def free(self) -> None:
        """Release the memory."""
        self._window.rows = self._window.columns = 0
        for layer in self._all_layers:
            layer.free()

    def set_window(
        self,
        first: int,
        columns: torch.Tensor,
        *,
        before: int,
        width: int,
        shared: Shared | None = None,
        packed: Packed | None = None,
    ) -> None:
        """The next pass is for the rows from `first` on and writes to `columns` [rows, tokens]. It
        sees the first `width` columns of each row, of which `before` were already written."""
        window = self._window
        rows = torch.arange(first, first + columns.shape[0], device=columns.device)[:, None]
        window.first, window.packed = first, packed
        window.places = (rows if packed is None else packed.places), columns
        window.before, window.visible = before, width
        window.shared = shared

    @property
    def visible(self) -> int:
        """Columns from 0 on that the next pass sees."""
        return self._window.visible

    @property
    def shared(self) -> Shared | None:
        """Beginnings that the next pass reads once for several rows."""
        return self._window.shared

    @property
    def packed(self) -> Packed | None:
        """The layout of the tokens in the next pass, if they are packed."""
        return self._window.packed

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the beginning of a row to another row."""
        for layer in self._all_layers:
            for tensor in layer.held:
                tensor[target, :, :length] = tensor[source, :, :length]

    def read(self, row: int, length: int) -> States:
        """The beginning of a row, as views."""
        return [
            (keys[row, :, :length], values[row, :, :length]) for keys, values in self._allocations()
        ]

    def write(self, row: int, states: States) -> None:
        """Write the beginning of a row."""
        for tensors, beginnings in zip(self._allocations(), states, strict=True):
            for tensor, beginning in zip(tensors, beginnings, strict=True):
                tensor[row, :, : beginning.shape[1]] = beginning

    def wipe(self, first: int, end: int | None = None) -> None:
        """Zero the rows from `first` on, up to `end` (None: all): even a weight of zero does not
        hide a NaN."""
        for tensor in itertools.chain.from_iterable(self._allocations()):
            tensor[first:end].zero_()

    def _allocations(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values of each layer that has both allocated."""
        return (layer.held for layer in self._all_layers if layer.whole)


def _round_up(count: int, block: int) -> int:
    """`count`, rounded up to whole blocks."""
    return -(-count // block) * block


def _grow(before: int, needed: int, most: int, block: int) -> int:
    """Rows or columns of a larger allocation, of which `needed` are used: the same number as before
    if that is enough and at most `GROWTH` times `needed`, otherwise up to `GROWTH` times the
    previous number."""
    if needed <= before:
        return before if before <= GROWTH * needed else needed
    return max(needed, min(_round_up(int(before * GROWTH), block), _round_up(most, block)))

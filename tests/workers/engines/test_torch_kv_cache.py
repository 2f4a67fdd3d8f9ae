"""Growth of the key-value allocation: intermediate allocations stay in proportion."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from loopline.workers.engines.torch import kv_cache
from loopline.workers.engines.torch.kv_cache import COLUMNS, GROWTH, ROWS, KVCache

HEADS, HEAD_SIZE = 2, 4
ROW_BYTES = 2 * HEADS * HEAD_SIZE * 4
"""Bytes of one column of one row, keys and values, in float32."""


class Allocations:
    """Counts the allocations of a one-layer cache; more than `most` bytes of keys or values are
    refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.most: float = float("inf")
        layer: Any = kv_cache._Layer  # pyright: ignore[reportPrivateUsage]
        allocated = layer._reallocate

        def counted(instance: Any, *tensors: Any) -> torch.Tensor:
            window = instance._window
            size = window.rows * window.columns * ROW_BYTES // 2
            if size > self.most:
                raise torch.OutOfMemoryError(f"no room for {size} bytes")
            self.sizes.append(size)
            return allocated(instance, *tensors)

        monkeypatch.setattr(layer, "_reallocate", counted)


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> Allocations:
    return Allocations(monkeypatch)


def cache_of(rows: int, most_columns: int = 4096) -> KVCache:
    """Return a cache with one token in each of that many rows."""
    cache = KVCache(64, most_columns)
    cache.fit(rows, 1)
    cache.set_window(0, torch.zeros((rows, 1), dtype=torch.int64), before=0, width=1)
    states = torch.arange(rows, dtype=torch.float32)[:, None, None, None]
    states = states.expand(rows, HEADS, 1, HEAD_SIZE)
    cache.update(states, -states, 0)
    return cache


def live(cache: KVCache) -> int:
    """Return the bytes that it holds."""
    return sum(
        tensor.untyped_storage().nbytes()
        for layer in cache._all_layers  # pyright: ignore[reportPrivateUsage]
        for tensor in layer.held
    )


@pytest.mark.parametrize("columns", [512, 1024, 4096])
def test_rows_that_grow_by_a_token_a_step_allocate_four_times_their_size_in_all(
    allocations: Allocations, columns: int
) -> None:
    """In blocks of 64 columns the factor would be 4.5 at 512, 8.5 at 1,024 and 32 at 4,096."""
    cache = cache_of(64)
    for length in range(2, columns + 1):
        cache.fit(64, length)
        assert live(cache) <= GROWTH * 64 * (length + COLUMNS) * ROW_BYTES
    final = 64 * columns * ROW_BYTES
    assert final <= live(cache)
    assert sum(allocations.sizes) <= 4 * final
    assert len(allocations.sizes) // 2 <= 12


def test_rows_that_join_one_by_one_allocate_three_times_their_size_in_all(
    allocations: Allocations,
) -> None:
    cache = cache_of(1)
    for rows in range(2, 65):
        cache.fit(rows, COLUMNS)
        assert live(cache) <= GROWTH * (rows + ROWS) * COLUMNS * ROW_BYTES
    assert live(cache) == 64 * COLUMNS * ROW_BYTES
    assert sum(allocations.sizes) <= 3 * live(cache)


def test_it_never_grows_beyond_the_model_s_context(allocations: Allocations) -> None:
    cache = cache_of(4, most_columns=320)
    for length in range(2, 321):
        cache.fit(4, length)
    assert live(cache) == 4 * 320 * ROW_BYTES


def test_it_grows_only_as_needed_when_memory_is_short(allocations: Allocations) -> None:
    cache = cache_of(8)
    cache.fit(8, 256)
    allocations.most = 8 * 320 * ROW_BYTES // 2
    cache.fit(8, 257)
    assert live(cache) == 8 * 320 * ROW_BYTES
    keys = [keys for keys, _ in cache.read(5, 1)]
    assert keys[0].tolist() == [[[5.0] * HEAD_SIZE]] * HEADS
    with pytest.raises(torch.OutOfMemoryError):
        cache.fit(8, 321)


def test_it_shrinks_when_most_of_it_is_unused(allocations: Allocations) -> None:
    cache = cache_of(64)
    cache.fit(64, 512)
    cache.fit(4, 512)
    assert live(cache) == 4 * 512 * ROW_BYTES

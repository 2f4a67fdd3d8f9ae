"""A bounded map for what a process remembers about many things."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """The most recent values by key. An evicted value must be looked up again, and eviction must
    have no other effect: a process that serves strangers for months sees more keys than it has room
    for.
    """

    def __init__(self, most: int) -> None:
        """`most`: maximum number of keys; the key that was set longest ago is evicted first."""
        if most < 1:
            raise ValueError(f"room for {most} values: at least 1 is required")
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        return self._values.get(key)

    def set(self, key: K, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def forget(self, key: K) -> None:
        """Remove a key, if it exists."""
        self._values.pop(key, None)

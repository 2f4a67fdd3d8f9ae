"""What a process remembers of many things, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """The newest values by key. What is forgotten has to be looked up again, and nothing else may
    follow from it: a process that serves strangers for months sees more keys than it has room for.
    """

    def __init__(self, most: int) -> None:
        """`most`: of how many keys; the one that was set longest ago leaves first."""
        if most < 1:
            raise ValueError(f"room for {most} values; give 1 or more")
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
        """Also one that is not there."""
        self._values.pop(key, None)

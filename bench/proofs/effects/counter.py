"""The outside world: a file to which each effect adds a line, even if its cause is undone."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path


def take_effect(file: Path, call: int, key: str = "") -> None:
    """Write one line in one write: a killed process has written either all of it or nothing."""
    descriptor = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, f"{call} {key}\n".encode())
    finally:
        os.close(descriptor)


@dataclass
class Effects:
    """Content of the file."""

    times: Counter[int] = field(default_factory=Counter[int])
    """Number of effects by call."""
    keys: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Keys received with the effects of a call, by call."""

    @property
    def repeated(self) -> int:
        """Effects beyond the first of their call."""
        return sum(count - 1 for count in self.times.values())

    @property
    def repeated_keys(self) -> int:
        """Keys beyond the first of their call: no receiver could have recognised these effects as
        repeats."""
        return sum(len(keys) - 1 for keys in self.keys.values())


def read_effects(file: Path) -> Effects:
    effects = Effects()
    for row in file.read_text().splitlines() if file.exists() else ():
        call, _, key = row.partition(" ")
        effects.times[int(call)] += 1
        effects.keys[int(call)].add(key)
    return effects

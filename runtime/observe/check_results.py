"""Findings of `runtime doctor`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line of the report. `missing`: `runtime up` can't work as configured."""

    level: Level
    subject: str
    says: str
    do: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)

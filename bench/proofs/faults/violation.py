"""One broken promise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """Which rule is broken, and how."""

    rule: str
    said: str
    run_id: str = ""

    def __str__(self) -> str:
        where = f" run {self.run_id}:" if self.run_id else ""
        return f"[{self.rule}]{where} {self.said}"

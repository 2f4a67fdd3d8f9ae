"""Counts of `bench validity`."""

from __future__ import annotations

from dataclasses import dataclass

from loopline.bench.statistics import Interval, wilson


@dataclass
class Counts:
    """Counts of all completions at one temperature, constrained or not."""

    kind: str
    """Kind: `tool calls` or `json answer`."""
    temperature: float
    constrained: bool
    completions: int = 0
    with_any: int = 0
    """Completions with at least one call; for JSON answers, all completions."""
    written: int = 0
    """Written calls or answers."""
    cut: int = 0
    """Written calls or answers that max_tokens cut off before their end."""
    parsed: int = 0
    """Written calls or answers that are JSON which a record can carry."""
    valid: int = 0
    """Written calls or answers that the schema accepts."""
    tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def called(self) -> Interval:
        return wilson(self.with_any, self.completions)

    @property
    def parse_share(self) -> Interval:
        return wilson(self.parsed, self.written)

    @property
    def validity(self) -> Interval:
        return wilson(self.valid, self.written)

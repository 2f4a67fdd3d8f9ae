"""What `bench validity` counts."""

from __future__ import annotations

from dataclasses import dataclass

from loopline.bench.statistics import Interval, wilson


@dataclass
class Counts:
    """Of all completions at one temperature, constrained or not."""

    kind: str
    """`tool calls` or `json answer`."""
    temperature: float
    constrained: bool
    completions: int = 0
    with_any: int = 0
    """Completions with at least one call; for JSON answers all of them."""
    written: int = 0
    """Calls, or answers."""
    cut: int = 0
    """Of these, not at their end when max_tokens ended the completion."""
    parsed: int = 0
    """Of those written, JSON that a record can carry."""
    valid: int = 0
    """Of those written, what the schema accepts."""
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

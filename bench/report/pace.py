"""Whether a benchmark waited for anything but its models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from agents.records import UsageEntry


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds from the first call's start to the last one's end, beside the least possible."""

    wall: float
    ideal: float
    """Sum over runs of the calls on the critical path, divided by the runs in flight."""

    @property
    def ratio(self) -> float:
        return self.wall / self.ideal


def pace(entries: Sequence[UsageEntry], concurrency: int) -> Pace | None:
    """The pace of a benchmark that was not interrupted; None without a call.

    A call counts from its first token's wait to its end, without its time in a queue. Branches of
    one turn run side by side, so the longest counts; calls of one branch follow each other. The
    ideal keeps all places busy to the end, which the last runs of a real benchmark can't.
    """
    paths: dict[tuple[str, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    began: list[float] = []
    for entry in entries:
        served = entry.latency.first_token + entry.latency.decode
        paths[entry.run_id, entry.turn][entry.branch] += served
        began.append(entry.at - served - entry.latency.queue)
    ideal = sum(max(branches.values()) for branches in paths.values()) / concurrency
    if not ideal:
        return None
    return Pace(max(entry.at for entry in entries) - min(began), ideal)

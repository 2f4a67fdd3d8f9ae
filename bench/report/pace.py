"""Checks whether a benchmark waited only for its models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from loopline.agents.usage import UsageEntry


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds from the first call's start to the last call's end, with the minimum possible."""

    wall: float
    ideal: float
    """Sum over runs of the calls on the critical path, divided by the runs in flight."""

    @property
    def ratio(self) -> float:
        return self.wall / self.ideal


def pace(entries: Sequence[UsageEntry], concurrency: int) -> Pace | None:
    """The pace of an uninterrupted benchmark; None without a call.

    A call's time counts from the wait for its first token to its end, without the engine's queue.
    Branches of a turn run in parallel, so only the longest counts; the same holds for the
    candidates of one request. Requests of a branch run one after another. The ideal keeps every
    slot busy to the end, which the last runs of a real benchmark can't do.
    """
    requests: dict[tuple[str, int, int, str], float] = defaultdict(float)
    began: list[float] = []
    for entry in entries:
        duration = entry.latency.first_token + entry.latency.decode
        # A request's candidates are `REQUEST`, `REQUEST#1`, …: see
        # `loopline.workers.completions.call_of`.
        request = entry.call_id.partition("#")[0]
        place = entry.run_id, entry.turn, entry.branch, request
        requests[place] = max(requests[place], duration)
        began.append(entry.at - duration - entry.latency.queue)
    paths: dict[tuple[str, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (run, turn, branch, _), duration in requests.items():
        paths[run, turn][branch] += duration
    ideal = sum(max(branches.values()) for branches in paths.values()) / concurrency
    if not ideal:
        return None
    return Pace(max(entry.at for entry in entries) - min(began), ideal)

"""How the ledger determines a benchmark's pace."""

from __future__ import annotations

import pytest

from loopline.agents.records import Latency, PolicyRef, Usage
from loopline.agents.usage import UsageEntry
from loopline.bench.report.pace import pace


def call(run: str, turn: int, branch: int, at: float, decode: float) -> UsageEntry:
    return UsageEntry(
        run_id=run,
        call_id=f"{run}/{turn}.{branch}/{at}",
        agent="planner",
        turn=turn,
        branch=branch,
        policy=PolicyRef(name="llm", base="scripted"),
        usage=Usage(prompt=1, completion=1, source="engine"),
        cost_micro_dollars=0,
        latency=Latency(queue=0.5, first_token=0.0, decode=decode),
        at=at,
    )


def test_sequential_calls_add_up_and_the_queue_counts_as_waiting() -> None:
    measured_pace = pace([call("a", 0, 0, 11.5, 1.0), call("a", 1, 0, 13.0, 1.0)], concurrency=1)
    assert measured_pace is not None
    assert (measured_pace.ideal, measured_pace.wall, measured_pace.ratio) == (2.0, 3.0, 1.5)


def test_the_longest_parallel_branch_counts() -> None:
    side_by_side = [call("a", 0, 0, 11.5, 1.0), call("a", 0, 1, 12.5, 2.0)]
    measured_pace = pace(side_by_side, concurrency=1)
    assert measured_pace is not None
    assert measured_pace.ideal == 2.0


def test_runs_share_the_concurrency_slots() -> None:
    measured_pace = pace([call("a", 0, 0, 11.5, 1.0), call("b", 0, 0, 11.5, 1.0)], concurrency=2)
    assert measured_pace is not None
    assert measured_pace.ideal == pytest.approx(1.0)


def test_without_a_call_there_is_no_pace() -> None:
    assert pace([], concurrency=4) is None


def test_the_longest_candidate_of_one_request_counts() -> None:
    """The call ids mark the candidates; the next request follows them."""
    drawn = [
        call("a", 0, 0, 11.5, 1.0).model_copy(update={"call_id": f"a/0.0/0{part}"})
        for part in ("", *(f"#{at}" for at in range(1, 8)))
    ]
    again = call("a", 0, 0, 13.5, 2.0).model_copy(update={"call_id": "a/0.0/1"})
    measured_pace = pace([*drawn, again], concurrency=1)
    assert measured_pace is not None
    assert measured_pace.ideal == 3.0

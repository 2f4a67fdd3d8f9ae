"""Costs, summed over the store and the bus's part of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import Latency, PolicyRef, Usage
from loopline.agents.usage import UnknownUsage, UsageEntry
from loopline.runtime.errors import UserError
from loopline.runtime.observe.costs import CostLine, Costs, Grouping, Unrecorded, read_costs
from loopline.testing.recorded_runs import as_on_the_bus
from loopline.workers.recorder import TRAJECTORY_SCHEMA, USAGE_SCHEMA, Table, usage_row
from loopline.workers.recorder import trajectory_row as row_of_run
from tests.trainers.grpo.recorded import a_run

pytest.importorskip("duckdb")

DAY = 86_400.0


def an_entry(
    run: int, at: float, *, pool: str = "llm", micro: int | None = 10, sent_as: str = ""
) -> UsageEntry:
    """The entry of a call of 100 tokens; if `micro` is None, its usage is unknown."""
    return UsageEntry(
        run_id=a_run(run).run.id,
        call_id=f"call-{run}-{at}",
        agent="solo",
        turn=0,
        policy=PolicyRef(name=pool, base=pool),
        usage=None if micro is None else Usage(prompt=80, completion=20, source="provider"),
        cost_micro_dollars=micro,
        unknown=UnknownUsage(why="lost", prompt=80, completion=20, micro_dollars=15)
        if micro is None
        else None,
        sent_as=sent_as,
        latency=Latency(),
        at=at,
    )


def fields(entry: UsageEntry) -> dict[bytes, bytes]:
    return {b"usage": entry.model_dump_json().encode()}


async def stored(store: Path, *entries: UsageEntry) -> None:
    table = Table(store / "usage", 0, USAGE_SCHEMA, usage_row)
    await table.write([(f"{at + 1}-0", fields(entry)) for at, entry in enumerate(entries)])


def costs(
    store: Path, by: Grouping, *, live: list[dict[str, Any]] | None = None, until: float = 9 * DAY
) -> Costs:
    unrecorded = Unrecorded(live or [], [])
    return read_costs(store, unrecorded, ["llm"], since=0.0, until=until, by=by)


def figures(lines: list[CostLine]) -> dict[str, tuple[int, int]]:
    """Name → micro-dollars and calls of unknown cost."""
    return {line.name: (line.micro_dollars, line.unknown_calls) for line in lines}


async def test_a_pool_without_a_price_costs_an_unknown_amount(tmp_path: Path) -> None:
    await stored(tmp_path, an_entry(1, DAY), an_entry(1, DAY, pool="slm", micro=0))
    assert figures([*costs(tmp_path, "model").lines]) == {"llm": (10, 0), "slm": (0, 1)}


async def test_days_are_in_order_and_those_outside_the_period_are_left_out(tmp_path: Path) -> None:
    await stored(tmp_path, *(an_entry(1, at * DAY + 5) for at in (2, 1, 1, 7)))
    result = costs(tmp_path, "day", until=3 * DAY)
    assert figures([*result.days]) == {"1970-01-02": (20, 0), "1970-01-03": (10, 0)}
    assert result.total.micro_dollars == 30


async def test_an_entry_that_is_on_the_bus_and_in_the_store_counts_once(tmp_path: Path) -> None:
    entry = an_entry(1, DAY)
    await stored(tmp_path, entry)
    recorded = {"shard": 0, "entry": "1-0", **usage_row(fields(entry))}
    later = {"shard": 0, "entry": "2-0", **usage_row(fields(an_entry(2, DAY)))}
    total = costs(tmp_path, "model", live=[recorded, later]).total
    assert (total.calls, total.micro_dollars, total.runs) == (2, 20, 2)


async def test_a_known_call_replaces_the_unknown_one_of_the_same_request(
    tmp_path: Path,
) -> None:
    await stored(
        tmp_path,
        an_entry(1, DAY, micro=None, sent_as="a"),
        an_entry(1, DAY, sent_as="a"),
        an_entry(1, DAY, micro=None, sent_as="b"),
    )
    total = costs(tmp_path, "model").total
    assert (total.calls, total.micro_dollars, total.unknown_calls) == (2, 10, 1)
    assert total.most_unknown_micro_dollars == 15


async def test_costs_are_grouped_by_workflow_tag_and_key(tmp_path: Path) -> None:
    runs = [a_run(1), a_run(2, workflow="solo")]
    changed = runs[0].run.model_copy(update={"tags": {"team": "a", 'q"': "x"}, "account": "k" * 12})
    runs[0] = runs[0].model_copy(update={"run": changed})
    table = Table(tmp_path / "trajectories", 0, TRAJECTORY_SCHEMA, row_of_run)
    await table.write([(f"{at + 1}-0", as_on_the_bus(run)) for at, run in enumerate(runs)])
    await stored(tmp_path, an_entry(1, DAY), an_entry(2, DAY), an_entry(3, DAY))
    assert figures([*costs(tmp_path, "workflow").lines]) == {
        "pair": (10, 0), "solo": (10, 0), "": (10, 0),
    }  # fmt: skip
    assert figures([*costs(tmp_path, "tag").lines]) == {
        "team=a": (10, 0), 'q"=x': (10, 0), "": (20, 0),
    }  # fmt: skip
    assert figures([*costs(tmp_path, "key").lines]) == {"k" * 12: (10, 0), "": (20, 0)}


def test_an_empty_store_has_no_costs(tmp_path: Path) -> None:
    assert costs(tmp_path, "tag").total.calls == 0


async def test_the_error_for_a_damaged_ledger_file_names_it(tmp_path: Path) -> None:
    await stored(tmp_path, an_entry(1, DAY))
    (path,) = (tmp_path / "usage").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=path.name):
        costs(tmp_path, "model")

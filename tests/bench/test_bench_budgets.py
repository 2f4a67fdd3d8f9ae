"""The bus enforces a benchmark's budget, before each call."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from loopline.agents.records import Latency, PolicyRef, Usage
from loopline.agents.usage import UnknownUsage, UsageEntry
from loopline.bench.budgets import (
    BenchBudget,
    hold,
    lift,
    limits_of,
    options_in_words,
    scope_of,
    spent_of,
)
from loopline.bench.errors import UsageError
from loopline.bench.ledger import read_ledger
from loopline.bench.output import Manifest
from loopline.bench.runner import Ending
from loopline.bench.session import conduct
from loopline.bus import BusSettings, Limits
from loopline.bus.budgets import counts, limited_scopes
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_client import RunClient
from loopline.testing import running_workers
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import GpuWorkerSettings, RoleWorkerSettings
from tests.bench.benchmarks import created, items, manifest
from tests.bench.local_client import LocalClient


def entry(run_id: str, usage: Usage | None, unknown: UnknownUsage | None = None) -> UsageEntry:
    return UsageEntry(
        run_id=run_id, call_id=f"{run_id}/0.0/0", agent="llm", turn=0,
        policy=PolicyRef(name="llm", base="m"), usage=usage,
        cost_micro_dollars=None if usage is None else 7, unknown=unknown, latency=Latency(), at=0.0,
    )  # fmt: skip


def limited(**limits: int) -> Manifest:
    base = manifest(items(6), arms=("llm",), concurrency=2, calculator=False)
    return base.model_copy(update=limits)


def test_unknown_spending_counts_at_its_maximum() -> None:
    counted = entry("a", Usage(prompt=10, completion=5, source="provider"))
    lost = entry("b", None, UnknownUsage(why="died", prompt=100, completion=50, micro_dollars=900))
    assert spent_of([counted, lost], []) == Limits(165, 907, 0)


def test_invalid_budgets_are_refused_and_small_ones_are_not_rounded_to_zero() -> None:
    for budget in (BenchBudget(usd=0), BenchBudget(tokens=-1), BenchBudget(seconds=1e12)):
        with pytest.raises(UsageError, match="--budget-"):
            _ = budget.changes
    assert BenchBudget(usd=1e-9).changes == {"budget_micro_dollars": 1}


def test_a_benchmark_without_a_budget_does_not_mention_one() -> None:
    assert options_in_words(limited()) == ""
    assert options_in_words(limited(budget_tokens=1, budget_micro_dollars=1)) == (
        "--budget-tokens MORE --budget-usd MORE"
    )


async def test_spending_unknown_to_the_bus_lowers_the_limit(settings: BusSettings) -> None:
    wanted = limited(budget_tokens=1_000, budget_micro_dollars=1_000_000)
    booked = [entry("a", Usage(prompt=300, completion=0, source="provider"))]
    async with Client.connect(settings, writes=True) as client:
        await hold(client, wanted, booked, [])
        (state,) = await limited_scopes(client.bus)
        assert (state.scope, state.limits) == (scope_of(wanted), Limits(700, 999_993, 0))
        key = client.bus.keys.shard(0).spent(scope_of(wanted), "all")
        await client.bus.redis.hset(key, mapping={"tokens": 400, "micro": 7})  # pyright: ignore
        await client.bus.redis.pexpire(key, 60_000)
        await hold(client, wanted, booked, [])
        (state,) = await limited_scopes(client.bus)
        assert state.limits == limits_of(wanted), "the bus has counted all of it, and more"
        await lift(client, wanted)
        assert await limited_scopes(client.bus) == []


async def test_a_client_without_a_bus_is_refused_rather_than_unlimited() -> None:
    await hold(LocalClient(), limited(), [], [])
    with pytest.raises(UsageError, match="a budget needs a bus"):
        await hold(LocalClient(), limited(budget_tokens=1), [], [])


@asynccontextmanager
async def deployment(settings: BusSettings, folder: Path) -> AsyncGenerator[None]:
    model = ModelSettings.model_validate({"engine": "scripted", "model": "m", "max_tokens": 50})
    workers = [
        GpuWorkerSettings(bus=settings, name="gpu", models={"llm": model}),
        RoleWorkerSettings(bus=settings, name="role", roles=("solo",)),
    ]
    async with running_workers(workers, folder):
        yield


@pytest.mark.timeout(180)
async def test_a_benchmark_stops_at_its_token_budget_and_resumes_with_a_larger_one(
    settings: BusSettings, tmp_path: Path
) -> None:
    wanted = limited(budget_tokens=1)
    directory = created(tmp_path / "results", wanted)

    def connect() -> AbstractAsyncContextManager[RunClient]:
        return Client.connect(settings, {"solo": "llm"}, writes=True)

    async with deployment(settings, tmp_path / "workers"):
        ended = await conduct(directory, connect, manifest=wanted)
        assert ended.ending is Ending.BUDGET
        assert (directory.stored().results, read_ledger(directory.ledger_path)) == ({}, [])
        async with Client.connect(settings, writes=True) as client:
            refused = await client.bus.run_state(next(iter(directory.stored().runs)))
        needed = re.search(r"it may take ([\d,]+) tokens", refused.reason)
        assert needed is not None
        # A run uses about seventy of the tokens that it holds.
        most = int(needed[1].replace(",", "")) + 200
        some = wanted.model_copy(update={"budget_tokens": most})
        ended = await conduct(directory, connect, manifest=some)
        assert ended.ending is Ending.BUDGET
        assert 0 < len(directory.stored().results) < 6
        assert spent_of(read_ledger(directory.ledger_path), []).tokens <= most
        more = wanted.model_copy(update={"budget_tokens": 1_000_000})
        ended = await conduct(directory, connect, manifest=more)
        assert ended.ending is Ending.COMPLETE
        async with Client.connect(settings, writes=True) as client:
            spent, reserved = await counts(client.bus, scope_of(wanted))
            assert await limited_scopes(client.bus) == []
    assert len(directory.stored().results) == 6
    booked = spent_of(read_ledger(directory.ledger_path), [])
    assert (spent.tokens, reserved.tokens) == (booked.tokens, 0)


@pytest.mark.timeout(180)
async def test_runs_wait_for_the_seconds_that_other_runs_hold(
    settings: BusSettings, tmp_path: Path
) -> None:
    """Each run holds its whole time, so only one of two has room at once."""
    wanted = limited(budget_milliseconds=60_000).model_copy(update={"run_seconds": 40.0})
    directory = created(tmp_path / "results", wanted)

    def connect() -> AbstractAsyncContextManager[RunClient]:
        return Client.connect(settings, {"solo": "llm"}, writes=True)

    async with deployment(settings, tmp_path / "workers"):
        ended = await conduct(directory, connect, manifest=wanted)
    assert ended.ending is Ending.COMPLETE

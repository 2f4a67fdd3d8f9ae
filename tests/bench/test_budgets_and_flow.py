"""Runs under a budget and calls under a limit, briefly: the proofs themselves take minutes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from loopline.bench.proofs.budgets import load
from loopline.bench.proofs.budgets.provider import read_book
from loopline.bench.proofs.flow import rate, tenants
from loopline.bus import BusSettings
from loopline.testing import RedisProcess
from tests.conftest import quick_settings

BUDGET = 300_000


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(300)
@pytest.mark.parametrize("hedge", [False, True])  # which holds room for two calls of a branch
async def test_no_run_is_billed_beyond_its_budget_while_workers_die(
    own_server: RedisProcess, tmp_path: Path, hedge: bool
) -> None:
    settings = quick_settings(own_server.url, max_attempts=100, lease_seconds=1.0)
    book, budget = tmp_path / "book", 6 * BUDGET if hedge else BUDGET
    async with asyncio.timeout(240):
        result = await load.play(
            settings, own_server, book, runs=6, branches=24, micro_dollars=budget,
            rng=random.Random(7), hedge=hedge,
        )  # fmt: skip
    billed, calls = read_book(book)
    assert calls >= result.answers > 0
    assert (result.hedged > 0) == hedge
    assert max(billed.values()) <= budget
    assert not any(result.reserved.values())
    for run_id, cost in billed.items():
        assert cost <= result.spent[run_id] <= budget
    assert result.day[0].micro_dollars == sum(result.spent.values())


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(300)
async def test_workers_share_a_limit_without_a_refusal(
    own_server: RedisProcess, tmp_path: Path
) -> None:
    settings = quick_settings(own_server.url)
    result = await rate.play(settings, tmp_path, per_minute=600, seconds=6.0, say=lambda text: None)
    assert result.refused == 0
    assert 0 < result.answers <= result.allowed + 10


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(300)
async def test_a_small_tenant_gets_its_turns_next_to_a_large_one(
    own_server: RedisProcess, tmp_path: Path
) -> None:
    settings: BusSettings = quick_settings(own_server.url, max_unrecorded=100_000)
    result = await tenants.play(settings, tmp_path, runs=300, samples=8, say=lambda text: None)
    assert len(result.alone) == len(result.together) == 8
    assert result.waiting > 0

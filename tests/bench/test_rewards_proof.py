"""Rewards count once, even if their senders and the recorder are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.bench.proofs.rewards.proof import POSTERS, RewardsOptions, play
from loopline.testing import RedisProcess
from tests.conftest import quick_settings


@pytest.mark.timeout(300)
async def test_rewards_sent_by_three_killed_programs_are_stored_once(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    options = RewardsOptions(rewards=500, kills=1, seed=7)
    settings = quick_settings(any_server.url, shards=2)
    result = await play(settings, tmp_path, options)
    assert (result.counted, result.rows, result.wrong) == (500, 500, 0)
    assert result.sent >= POSTERS * 500
    assert result.kills == 2 * POSTERS

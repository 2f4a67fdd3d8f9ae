"""A loop learns from the rewards of an OpenEnv server."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.bench.proofs.grpo_faults.model import write_base
from loopline.bus import BusSettings
from loopline.testing import RedisProcess
from loopline.workers.openenv.environment import PLAYER, URL_VARIABLE
from tests.conftest import quick_settings
from tests.workers.openenv.number_server import number_server

from .looped import deployed, loop_settings, run_loop

POLICIES = {PLAYER: "pair/player"}


@pytest.fixture
def bus(_shared_servers: dict[str, RedisProcess]) -> BusSettings:
    return quick_settings(next(iter(_shared_servers.values())).url, lease_seconds=5.0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_loop_trains_on_the_server_s_rewards(
    bus: BusSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft", reason="needs make install")
    base = write_base(tmp_path / "base")
    with number_server() as server:
        server.texts = True
        monkeypatch.setenv(URL_VARIABLE, server.url)
        with deployed(bus, base, tmp_path / "workers", POLICIES) as deployment:
            settings = loop_settings(
                deployment.base,
                policies=POLICIES,
                game="loopline.workers.openenv:SERVER",
                size=None,
                setting={"turns": 2},
                rounds=1,
                group_size=3,
            )
            report = run_loop(settings, tmp_path / "out", deployment.settings)
        assert report.rounds
        assert report.rounds[0].groups > 0
        assert server.steps == 0, "any text is an action of this server: it counts no guesses"
        assert server.resets > 6

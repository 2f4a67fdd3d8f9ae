"""`bench bus` measures what it says, and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from loopline.bench.proofs.bus import idle
from loopline.bench.proofs.bus.figures import Comparison, Peer, Report
from loopline.bench.proofs.bus.idle import Cost
from loopline.bench.proofs.bus.peers import MESSAGE_BYTES, PEERS, body
from loopline.bench.proofs.bus.processes import Throughput, throughput
from loopline.bench.proofs.bus.recovery import Recovery, recovery
from loopline.bench.proofs.bus.report import as_json, show
from loopline.testing import running_redis
from tests.bench.command_line import bench

pytestmark = pytest.mark.slow


def peer(drain: float, p99: float) -> Peer:
    """A peer of three repeats, the middle one with these figures."""
    return Peer(
        throughput=[Throughput(1.0, drain * factor, 1.0, 0.1, 0.1, 0.1, 50.0)
                    for factor in (0.5, 1.0, 2.0)],
        latencies=[[1.0] * 97 + [p99 * factor] * 3 for factor in (0.5, 1.0, 2.0)],
    )  # fmt: skip


def report(ours: Peer, faststream: Peer) -> Report:
    peers = {"raw": peer(300_000, 0.5), "faststream": faststream, "loopline": ours}
    return Report([Comparison("none", "Redis 7", peers)])


def test_ratios_are_those_of_the_medians() -> None:
    found = report(ours=peer(20_000, 3.0), faststream=peer(5_000, 2.0)).headline
    assert found.drain_ratio("faststream") == 4.0
    assert found.p99_ratio("faststream") == 1.5
    assert found.peers["loopline"].spread(lambda each: each.drain_per_second) == (
        20_000, 10_000, 40_000,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("drain", "p99", "met"),
    [(15_000, 3.0, [True, True]), (14_999, 3.0, [False, True]), (15_000, 3.1, [True, False])],
)
def test_a_bar_is_met_at_its_figure_and_not_beyond(
    drain: float, p99: float, met: list[bool]
) -> None:
    bars = report(ours=peer(drain, p99), faststream=peer(5_000, 2.0)).bars()
    assert [ok for _, _, ok in bars.values()] == met


def test_the_slowest_recovery_counts_and_sweeper_and_server_are_added_up() -> None:
    found = report(ours=peer(20_000, 2.0), faststream=peer(5_000, 2.0))
    found.recovery = Recovery(2.0, first=(1.5, 1.6), last=(1.9, 3.1))
    found.sweep = Cost(worker=0.9, server=1.0, seconds=15)
    found.idle = Cost(worker=1.2, server=0.1, seconds=10)
    bars = found.bars()
    assert {name: ok for name, (_, _, ok) in bars.items()} == {
        "drain_vs_faststream": True,
        "p99_vs_faststream": True,
        "recovery_s": False,
        "sweeper_core_percent": True,
        "idle_worker_core_percent": False,
    }
    assert bars["recovery_s"][0] == 3.1
    data = as_json(found)
    assert data["recovery_s"] == 3.1
    assert data["lease_s"] == 2.0
    assert data["sweeper_core_percent"] == 1.9
    console = Console(record=True, width=80)
    show(found, console)
    text = console.export_text()
    for cell in ("150,000–600,000", "end to end /s", "recovery_s", "idle_worker_core_percent"):
        assert cell in text, "nothing is cut off on 80 columns"
    assert "ours drains at 4.00 × FastStream" in text
    assert "missed" in text


def test_the_message_has_the_size_that_is_claimed() -> None:
    assert MESSAGE_BYTES - 12 <= len(body()) <= MESSAGE_BYTES


@pytest.mark.parametrize("name", PEERS)
async def test_every_peer_moves_all_its_messages(name: str, tmp_path: Path) -> None:
    with running_redis(tmp_path, persistence="none", listen="tcp") as server:
        found = await throughput(server, name, 300)
    assert min(found.enqueue_per_second, found.drain_per_second, found.end_to_end_per_second) > 0


async def test_every_delivery_of_a_killed_worker_reaches_another(tmp_path: Path) -> None:
    with running_redis(tmp_path, persistence="none", listen="tcp") as server:
        found = await recovery(server, rounds=1)
    # Not before its lease, counted from a renewal at most a third of it before the kill.
    assert found.first[0] > found.lease_seconds / 2
    assert found.last[0] >= found.first[0]


async def test_a_long_list_that_is_swept_over_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement looks after it, or it would be one of something else."""
    monkeypatch.setattr(idle, "SWEEP_SECONDS", 1.0)
    with running_redis(tmp_path, persistence="none", listen="tcp") as server:
        assert (await idle.sweep(server, 12_000)).seconds >= 1.0


def test_the_command_ends_with_one_line_of_json() -> None:
    done = subprocess.run(
        [
            sys.executable, "-c", "from loopline.bench.cli import main; main()", "bus",
            "--messages", "200", "--repeats", "1", "--latency-seconds", "1",
            "--persistence", "everysec",
            "--only-peers", "--json",
        ],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    # 1 is a missed bar: two hundred messages on a busy machine say nothing about speed.
    assert done.returncode in (0, 1), done.stderr
    data = json.loads(done.stdout.splitlines()[-1])
    assert data.keys() >= {"drain_vs_faststream", "p99_vs_faststream", "drain_vs_raw", "servers"}
    [server] = data["servers"]
    assert (server["appendonly"], set(server["peers"])) == ("everysec", set(PEERS))


def test_an_unknown_persistence_is_refused_with_the_choices() -> None:
    done = bench("bus", "--persistence", "x")
    assert done.returncode == 2
    assert "choose one of none, everysec, always, both" in done.stderr

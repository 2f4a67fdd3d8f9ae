"""`bench bus` measures the stated figures, and reports its measurements."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from loopline.bench.proofs.bus import idle
from loopline.bench.proofs.bus.peers import MESSAGE_BYTES, PEERS, message_body
from loopline.bench.proofs.bus.processes import Throughput, throughput
from loopline.bench.proofs.bus.proof import Peer, peer_measurements, ratios, recovery_measurements
from loopline.bench.proofs.bus.recovery import Recovery, measure_recovery
from loopline.bench.proofs.harness import show
from loopline.bench.proofs.outcome import Outcome
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


def peers(loopline_peer: Peer, faststream: Peer) -> dict[str, Peer]:
    return {"raw": peer(300_000, 0.5), "faststream": faststream, "loopline": loopline_peer}


def test_ratios_compare_medians() -> None:
    headline = {
        figures.name: figures.value
        for figures in ratios(peers(peer(20_000, 3.0), peer(5_000, 2.0)), bars=True)
    }
    assert (headline["drain_vs_faststream"], headline["p99_vs_faststream"]) == (4.0, 1.5)
    assert peer(20_000, 3.0).rate("drain_per_second") == (20_000, 10_000, 40_000)


@pytest.mark.parametrize(
    ("drain", "p99", "verdicts"),
    [(15_000, 3.0, [True, True]), (14_999, 3.0, [False, True]), (15_000, 3.1, [True, False])],
)
def test_a_measurement_passes_up_to_exactly_its_bar(
    drain: float, p99: float, verdicts: list[bool]
) -> None:
    measurements = ratios(peers(peer(drain, p99), peer(5_000, 2.0)), bars=True)
    assert [measurement.met for measurement in measurements] == [*verdicts, None]


def test_the_slowest_recovery_counts() -> None:
    measurements = recovery_measurements(Recovery(2.0, first=(1.5, 1.6), last=(1.9, 3.1)))
    slowest = measurements[-1]
    assert (slowest.value, slowest.bar, slowest.met) == (3.1, 3.0, False)


def test_every_figure_fits_80_columns() -> None:
    measurements = peer_measurements("none", peers(peer(300_000, 3.0), peer(5_000, 2.0)))
    console = Console(record=True, width=80)
    show(Outcome(measurements=measurements), console)
    text = console.export_text()
    for cell in ("150,000–600,000", "end to end", "p99 ms"):
        assert cell in text, "nothing is cut off on 80 columns"


def test_the_message_has_the_stated_size() -> None:
    assert MESSAGE_BYTES - 12 <= len(message_body()) <= MESSAGE_BYTES


@pytest.mark.parametrize("name", PEERS)
async def test_every_peer_moves_all_its_messages(name: str, tmp_path: Path) -> None:
    with running_redis(tmp_path, persistence="none", listen="tcp") as server:
        rates = await throughput(server, name, 300)
    assert min(rates.enqueue_per_second, rates.drain_per_second, rates.end_to_end_per_second) > 0


async def test_every_delivery_of_a_killed_worker_reaches_another(tmp_path: Path) -> None:
    with running_redis(tmp_path, persistence="none", listen="tcp") as server:
        result = await measure_recovery(server, rounds=1)
    # Not before the end of its lease, counted from a renewal at most a third of it before the kill.
    assert result.first[0] > result.lease_seconds / 2
    assert result.last[0] >= result.first[0]


async def test_a_sweep_over_a_long_list_leaves_it_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement checks this itself; otherwise it would measure something else."""
    monkeypatch.setattr(idle, "SWEEP_SECONDS", 1.0)
    with running_redis(tmp_path, persistence="none", listen="tcp") as server:
        assert (await idle.sweep(server, 12_000)).seconds >= 1.0


def test_the_command_ends_with_one_json_line() -> None:
    process = subprocess.run(
        [
            sys.executable, "-c", "from loopline.bench.cli import main; main()", "bus",
            "--messages", "200", "--repeats", "1", "--latency-seconds", "1",
            "--persistence", "everysec",
            "--only-peers", "--json",
        ],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    # 1 is a missed bar: two hundred messages on a busy machine prove nothing about speed.
    assert process.returncode in (0, 1), process.stderr
    data = json.loads(process.stdout.splitlines()[-1])
    measurements = data["measurements"]
    assert measurements.keys() >= {"drain_vs_faststream", "p99_vs_faststream", "drain_vs_raw"}
    assert measurements["drain_vs_faststream"]["bar"] == 3.0
    drained = {
        key.split(" / ")[1] for key in measurements if key.startswith("appendonly everysec / ")
    }
    assert drained == set(PEERS)
    assert "bus against a raw loop and FastStream: takes" in process.stderr


def test_an_unknown_persistence_is_refused_with_the_choices() -> None:
    process = bench("bus", "--persistence", "x")
    assert process.returncode == 2
    assert (
        "--persistence x: Input should be 'none', 'everysec', 'always' or 'both'" in process.stderr
    )

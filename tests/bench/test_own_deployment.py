"""A benchmark that starts its own deployment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from loopline.bench.deployments import require_prices
from loopline.bench.errors import UsageError
from loopline.bench.registry import find
from loopline.runtime.config.settings import load
from loopline.runtime.config.state import StateDirectory
from tests.bench.bench_process import COMMAND
from tests.bench.benchmarks import items, manifest
from tests.runtime.conftest import until

PROFILE = """
extends = "scripted"
workers.slm.count = 0
workers.tool.count = 0
workers.recorder.count = 0
"""
SLOW = PROFILE + "models.llm.scripted.tokens_per_second = 0.2\nsupervisor.drain_seconds = 2\n"


def command(path: Path, profile: str, *arguments: str) -> subprocess.Popen[str]:
    """A benchmark of two questions in a separate folder."""
    (path / "small.toml").write_text(profile)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LOOPLINE_")}
    return subprocess.Popen(
        [
            *COMMAND,
            "wordproblems",
            "--arms",
            "llm",
            "--samples",
            "2",
            "--calculator",
            "off",
            *arguments,
        ],
        cwd=path,
        env=environ | {"LOOPLINE_STATE": str(path / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def own(path: Path) -> tuple[str, str, str, str]:
    return ("--profile", str(path / "small.toml"), "--output", str(path / "out"))


@pytest.mark.slow
def test_one_command_starts_a_deployment_measures_and_stops_it(tmp_path: Path) -> None:
    process = command(tmp_path, PROFILE, *own(tmp_path), "--json")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert json.loads(output.splitlines()[-1])["arms"]["llm"]["n"] == 2
    assert "starting one of the profile" in errors
    assert "stopping the deployment" in errors
    assert StateDirectory(tmp_path / "state").holder() is None
    # The folder now contains a benchmark: an error, which stops the next deployment as well.
    process = command(tmp_path, PROFILE, *own(tmp_path))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "already holds a benchmark" in errors
    assert StateDirectory(tmp_path / "state").holder() is None


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_deployment_stops_with_its_benchmark_even_after_ctrl_c_or_a_kill(
    tmp_path: Path, how: signal.Signals
) -> None:
    process = command(tmp_path, SLOW, *own(tmp_path))
    items_path = tmp_path / "out" / "items.jsonl"
    until(lambda: items_path.exists() and "admitted" in items_path.read_text(), "run in flight")
    process.send_signal(how)
    if how is signal.SIGINT:
        process.send_signal(how)  # does not wait for runs in flight
    process.communicate(timeout=120)
    until(lambda: StateDirectory(tmp_path / "state").holder() is None, "end of the deployment")


def test_without_a_profile_nothing_is_started(tmp_path: Path) -> None:
    process = command(tmp_path, PROFILE)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "no deployment runs in" in errors
    assert "--profile" in errors


def test_a_profile_without_an_arm_s_pool_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    lacking = 'extends = "scripted"\npolicies.solo = "slm"\nworkers.planner.roles = ["planner"]\n'
    process = command(tmp_path, lacking, *own(tmp_path))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "needs the role 'solo'" in errors
    assert not (tmp_path / "state" / "logs").exists()


@pytest.mark.parametrize(
    ("profile", "overrides", "missing"),
    [
        ("scripted", (), None),
        ("micro", ("models.slm.price.prompt=0",), None),
        ("micro", (), "models.llm.price.prompt"),
        ("endpoint", ("models.llm.price.prompt=2",), "models.slm.price.prompt"),
        ("endpoint", ("models.llm.price.prompt=2", "models.slm.price.completion=0"), None),
    ],
)
def test_a_budget_requires_prices_for_the_paid_pools(
    profile: str, overrides: tuple[str, ...], missing: str | None
) -> None:
    """Local models may lack prices if others have them."""
    settings = load(profile, overrides=overrides)
    arms = find("gsm8k").arms.parse("llm,router,slm")
    require_prices(manifest(items(2)), arms, settings)
    limited = manifest(items(2)).model_copy(update={"budget_micro_dollars": 1_000_000})
    if missing is None:
        require_prices(limited, arms, settings)
    else:
        with pytest.raises(UsageError, match=missing):
            require_prices(limited, arms, settings)

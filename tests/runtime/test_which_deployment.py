"""The deployment that a command addresses, and which of its settings the command uses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopline.runtime.client.deployment import find
from loopline.runtime.config.settings import load
from loopline.runtime.config.state import RunFile, StateDirectory, StateLock
from loopline.runtime.errors import EXIT_USAGE, ConfigError
from loopline.workers.atomic_files import write_atomic
from tests.forked import BENCH, forked
from tests.runtime.conftest import ASKED, LIMIT, Deployment, until

pytestmark = pytest.mark.timeout(300)

OWN_URL = "unix://:its-password@/run/own.sock?db=0"
OTHER_URL = "redis://:another@elsewhere:6379/0"
STARTED_WITH = ("bus.prefix=team", "bus.shards=4", "models.slm.max_tokens=77")
VARIABLE = "LOOPLINE_BUS__REDIS_URL"


@pytest.fixture
def own_profile(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text('extends = "scripted"\n')
    return path


@pytest.fixture
def running(
    tmp_path: Path, own_profile: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunFile]:
    """The files that a supervisor, here this process, writes for a deployment of that profile."""
    for name in [name for name in os.environ if name.startswith("LOOPLINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    state = StateDirectory.from_environment()
    state.create()
    settings = load(str(own_profile), overrides=STARTED_WITH, redis_url=OWN_URL, environ={})
    run = RunFile(
        pid=os.getpid(),
        started=0.0,
        profile=str(own_profile),
        redis_url=OWN_URL,
        control="/x",
        version="1",
    )
    lock = StateLock(state)
    write_atomic(state.resolved, settings.to_json(), private=True)
    lock.publish(run)
    yield run
    lock.release()


def profile_with_bus(folder: Path) -> str:
    path = folder / "bus.toml"
    path.write_text(f'extends = "scripted"\n[bus]\nredis_url = "{OTHER_URL}"\n')
    return str(path)


def test_a_set_option_overrides_the_settings_of_the_deployment(running: RunFile) -> None:
    settings = find(overrides=("workers.slm.concurrency=8",)).settings
    expected = find().settings.model_dump()
    assert expected["bus"]["prefix"] == "team"
    expected["workers"]["slm"]["concurrency"] = 8
    assert settings.model_dump() == expected


@pytest.mark.parametrize("named", ["own.toml", "./own.toml", "whole"])
def test_naming_the_profile_of_the_deployment_keeps_its_settings(
    running: RunFile, named: str
) -> None:
    profile = running.profile if named == "whole" else named
    assert find(profile=profile).settings == find().settings


def test_another_profile_keeps_the_bus_settings_of_the_deployment(running: RunFile) -> None:
    settings = find(profile="umi_scripted").settings
    assert settings.models == load("umi_scripted", environ={}).models
    assert settings.bus == find().settings.bus


def test_a_set_option_also_overrides_the_bus_settings_of_the_deployment(running: RunFile) -> None:
    for profile in (None, "umi_scripted"):
        bus = find(profile=profile, overrides=("bus.lease_seconds=3",)).settings.bus
        assert (bus.lease_seconds, bus.shards) == (3.0, 4)


def test_the_environment_does_not_change_the_settings_of_the_deployment(
    running: RunFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPLINE_BUS__PREFIX", "other")
    for profile in (None, "umi_scripted"):
        settings = find(profile=profile, overrides=("workers.tool.concurrency=8",)).settings
        assert settings.bus.prefix == "team"


def test_a_typo_in_a_set_option_is_reported_while_a_deployment_runs_too(running: RunFile) -> None:
    with pytest.raises(ConfigError, match=r"--set: .*did you mean workers.slm.concurrency"):
        find(overrides=("workers.slm.concurency=8",))


@pytest.mark.parametrize("how", ["variable", "set", "profile", "option"])
def test_another_bus_takes_precedence_over_the_running_deployment(
    running: RunFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "variable":
        monkeypatch.setenv(VARIABLE, OTHER_URL)
    deployment = find(
        redis_url=OTHER_URL if how == "option" else None,
        profile=profile_with_bus(tmp_path) if how == "profile" else None,
        overrides=(f"bus.redis_url={OTHER_URL}",) if how == "set" else (),
    )
    assert deployment.run is None
    assert deployment.settings.bus.redis_url == OTHER_URL


@pytest.mark.parametrize("url", [OWN_URL, ""])
def test_the_same_bus_or_none_in_the_environment_keeps_the_settings_of_the_deployment(
    running: RunFile, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    before = find().settings
    monkeypatch.setenv(VARIABLE, url)
    deployment = find()
    assert deployment.run == running
    assert deployment.settings == before


def test_a_worker_started_by_hand_with_a_set_option_joins_its_deployments_bus(
    deployment: Deployment,
) -> None:
    deployment.up("bus.prefix=team", "bus.shards=4", kinds=())
    deployment.start("worker", "slm", "--set", "workers.slm.concurrency=8")
    [worker] = until(lambda: deployment.workers("slm"), "worker started by hand")
    assert worker["concurrency"] == 8


def test_a_deployment_stores_the_absolute_path_of_its_profile(
    deployment: Deployment, own_profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_profile.parent)
    deployment.up(profile="own.toml", kinds=())
    run = deployment.state.running()
    assert run is not None
    assert run.profile == str(own_profile)


def bench(deployment: Deployment, profile: str) -> subprocess.CompletedProcess[str]:
    words = ("wordproblems", "--arms", "llm", "--samples", "1", "--output", "results")
    return forked(
        "loopline.bench.cli",
        BENCH,
        (*words, "--profile", profile),
        env=deployment.environ,
        timeout=LIMIT,
    )


def test_a_benchmark_accepts_a_relative_path_to_the_deployments_profile(
    deployment: Deployment, own_profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_profile.parent)
    deployment.up(profile=str(own_profile), kinds=ASKED)
    process = bench(deployment, "own.toml")
    assert process.returncode == 0, process.stderr


def test_a_benchmark_with_another_profile_than_the_deployment_is_refused(
    shared: Deployment,
) -> None:
    process = bench(shared, "umi_scripted")
    assert process.returncode == EXIT_USAGE
    assert "the deployment that runs here has the profile scripted" in process.stderr


def test_a_benchmark_on_a_bus_of_the_environment_uses_the_given_profile(
    deployment: Deployment, own_profile: Path
) -> None:
    own_profile.write_text('extends = "scripted"\n[bus]\nshards = 0\n')
    deployment.environ[VARIABLE] = OTHER_URL
    process = bench(deployment, str(own_profile))
    assert f"{own_profile}: bus.shards" in process.stderr

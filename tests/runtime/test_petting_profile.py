"""The profile `petting`: two agents, as two adapters of one model."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from loopline.agents.workflows import workflows
from loopline.bench.deployments import needed_pools
from loopline.bench.registry import find
from loopline.runtime.cli import app
from loopline.runtime.config import settings as config
from loopline.runtime.config.settings import Settings
from loopline.runtime.observe.status import stream_names
from loopline.workers.messages import JUDGE_STREAM


def test_both_agents_use_adapters_of_one_model_and_start_with_the_model_itself() -> None:
    settings = config.load("petting", environ={})
    pair = workflows.get("pair")
    hosted = [role for worker in settings.workers.values() for role in worker.roles]
    assert sorted(hosted) == sorted(pair.roles)
    assert settings.policies == dict(pair.default_policies)
    begin = {f"pair/{name}" for name in settings.models["pair"].base_until_published}
    assert begin == set(settings.policies.values())
    assert settings.workers["gpu"].models == ("pair",)


def test_its_rollouts_have_the_log_probabilities_that_a_trainer_needs() -> None:
    assert config.load("petting", environ={}).models["pair"].plain_logprobs


def test_it_serves_every_arm_of_bench_puzzles() -> None:
    settings = config.load("petting", environ={})
    for arm in find("puzzles").arms_for({"game": "sudoku"}).listed.values():
        assert needed_pools(arm, settings.policies) <= set(settings.models)
    workflows.get("pair").check_options(settings.options["pair"])


def test_its_own_redis_forgets_a_recorded_run_after_two_hours() -> None:
    settings = config.load("petting", environ={})
    assert settings.bus.retention_seconds == 7_200
    assert settings.own_redis


def test_status_counts_the_work_of_its_judge() -> None:
    assert JUDGE_STREAM in stream_names(config.load("petting", environ={}))


def test_status_counts_no_judge_work_for_a_profile_without_a_judge() -> None:
    assert JUDGE_STREAM not in stream_names(config.load("micro", environ={}))


def test_programs_run_without_bubblewrap_only_with_the_unsafe_option_of_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[tuple[list[str], Settings]] = []

    def start(profile: str, overrides: list[str], redis_url: None, settings: Settings) -> None:
        started.append((overrides, settings))

    monkeypatch.setattr("loopline.runtime.supervise.detached.start_detached", start)
    for flags in ((), ("--unsafe-exec",)):
        result = CliRunner().invoke(app, ["up", "--profile", "petting", "--detach", *flags])
        assert result.exit_code == 0, result.output
    assert [settings.sandbox.unsafe_exec for _, settings in started] == [False, True]
    # The supervisor, a separate process, gets the same setting.
    overrides, _ = started[-1]
    assert config.load("petting", overrides=overrides, environ={}).sandbox.unsafe_exec

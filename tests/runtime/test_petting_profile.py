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


def test_both_agents_are_served_by_adapters_of_one_model_that_begin_with_it_alone() -> None:
    settings = config.load("petting", environ={})
    pair = workflows.get("pair")
    hosted = [role for worker in settings.workers.values() for role in worker.roles]
    assert sorted(hosted) == sorted(pair.roles)
    assert settings.policies == dict(pair.default_policies)
    begin = {f"pair/{name}" for name in settings.models["pair"].base_until_published}
    assert begin == set(settings.policies.values())
    assert settings.workers["gpu"].models == ("pair",)


def test_what_it_rolls_out_has_the_log_probabilities_of_a_trainer() -> None:
    assert config.load("petting", environ={}).models["pair"].plain_logprobs


def test_it_serves_every_arm_of_bench_puzzles() -> None:
    settings = config.load("petting", environ={})
    for arm in find("puzzles").arms_for({"game": "sudoku"}).listed.values():
        assert needed_pools(arm, settings.policies) <= set(settings.models)
    workflows.get("pair").check_options(settings.options["pair"])


def test_its_redis_forgets_a_recorded_run_within_hours_and_the_server_is_still_its_own() -> None:
    settings = config.load("petting", environ={})
    assert settings.bus.retention_seconds == 7_200
    assert settings.own_redis


def test_status_counts_what_its_judge_has_to_do() -> None:
    assert JUDGE_STREAM in stream_names(config.load("petting", environ={}))


def test_status_counts_no_work_of_a_judge_that_a_profile_does_not_have() -> None:
    assert JUDGE_STREAM not in stream_names(config.load("micro", environ={}))


def test_programs_run_without_bubblewrap_only_where_up_is_told_so(
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
    # The supervisor, a process of its own, is told the same.
    overrides, _ = started[-1]
    assert config.load("petting", overrides=overrides, environ={}).sandbox.unsafe_exec

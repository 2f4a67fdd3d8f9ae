"""Loops that train all weights: each round's whole models are swapped into the running workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from loopline.testing import RedisProcess

from .looped import (
    POLICIES,
    Deployed,
    deployed_on,
    directory_of,
    killed_at,
    loop_settings,
    on_bus,
    run_loop,
    same,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def where(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    with deployed_on(_shared_servers, tmp_path_factory.mktemp("workers")) as deployment:
        yield deployment


@pytest.mark.parametrize("policies", ["shared", "per-role"])
def test_the_next_round_samples_with_the_weights_of_the_round_before(
    where: Deployed, tmp_path: Path, policies: str
) -> None:
    settings = loop_settings(where.base, weights="full", learning_rate=1e-3, rounds=2)
    grpo = settings.grpo.model_copy(update={"policies": policies})
    settings = settings.model_copy(update={"grpo": grpo})
    report = run_loop(settings, tmp_path / "out", where.settings)
    directory = directory_of(tmp_path / "out")
    for facts in report.rounds:
        assert (facts.stale, facts.foreign, facts.broken, facts.left_out) == (0, 0, 0, {})
        # The trainer, which has these weights, finds the samples as likely as the engine did.
        for summary in facts.step.policies.values():
            assert summary.effective_samples == pytest.approx(1.0, abs=1e-5)
    for agent, policy in POLICIES.items():
        name = settings.grpo.policy_of(agent)
        policy_state = on_bus(where.settings.bus, policy)
        assert policy_state.path_of(policy_state.current) == str(
            (directory.published(2) / name).resolve()
        )
        first, two = (
            load_file(directory.published(number) / name / "model.safetensors") for number in (0, 2)
        )
        assert not same(first, two)


@pytest.mark.slow
def test_a_killed_loop_resumes_to_the_same_models(where: Deployed, tmp_path: Path) -> None:
    settings = loop_settings(where.base, weights="full", learning_rate=1e-3, rounds=2)
    run_loop(settings, tmp_path / "whole", where.settings)
    killed_at("save", 2, settings, tmp_path / "killed", where.settings)
    run_loop(settings, tmp_path / "killed", where.settings)
    first, two = (
        load_file(tmp_path / name / "policies/shared/model.safetensors")
        for name in ("whole", "killed")
    )
    assert same(first, two)

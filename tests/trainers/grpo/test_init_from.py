"""Policies that continue from an earlier version of themselves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch

from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.pipeline import initial_policies, train
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.stream import step_batches
from loopline.workers.engines.local.adapter_base import weights_sha256
from loopline.workers.engines.local.model_files import MICRO_MODELS

from .recorded import record
from .tiny_grpo import data_in, load, rollouts, settings_of, write_base

ROLES = ("coder", "tester")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("begins") / "base")


def trained(base: Path, folder: Path, kind: str) -> dict[str, dict[str, torch.Tensor]]:
    """The weights that two policies finish with."""
    runs = rollouts(load(base), 0, count=3, agents=ROLES)
    asyncio.run(record(folder / "store", runs))
    settings = given(base, kind, {})
    data = data_in(folder / "store", load(base))
    train(settings, data, load(base), folder / "out")
    # Trained again, to see the weights before they are written.
    policies = initial_policies(settings, ROLES, load(base))
    learner = Learner(policies)
    for batch in step_batches(data.groups, settings):
        learner.step(batch)
    return in_network(policies)


def given(base: Path, kind: str, begins: dict[str, Path], **changes: object) -> GrpoSettings:
    return settings_of(
        weights=kind, policies="per-role", rank=2, base_sha256=weights_sha256(base),
        learning_rate=1e-2,
        init_from={
            name: {"model": str(folder), "sha256": weights_sha256(folder)}
            for name, folder in begins.items()
        },
        **changes,
    )  # fmt: skip


def in_network(policies: Policies) -> dict[str, dict[str, torch.Tensor]]:
    weights: dict[str, dict[str, torch.Tensor]] = {}
    for name in policies.names:
        policies.activate(name)
        weights[name] = {key: tensor.detach().clone() for key, tensor in policies.network.trained()}
    return weights


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_each_policy_resumes_from_its_own_weights(kind: str, base: Path, tmp_path: Path) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="needs make install")
    ended = trained(base, tmp_path, kind)
    folders = {name: tmp_path / "out/policies" / name for name in ROLES}
    weights = in_network(initial_policies(given(base, kind, folders), ROLES, load(base)))
    for name in ROLES:
        assert all(torch.equal(weights[name][key], tensor) for key, tensor in ended[name].items())
    some = in_network(
        initial_policies(given(base, kind, {"tester": folders["tester"]}), ROLES, load(base))
    )
    assert all(torch.equal(some["tester"][key], tensor) for key, tensor in ended["tester"].items())
    assert not all(
        torch.equal(some["coder"][key], tensor) for key, tensor in ended["coder"].items()
    )


def test_a_folder_without_an_earlier_version_is_refused_by_name(base: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"not an earlier version of a policy of this base"):
        initial_policies(given(base, "full", {"coder": MICRO_MODELS / "slm"}), ROLES, load(base))


def test_adapters_of_another_rank_or_base_are_refused(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs make install")
    trained(base, tmp_path, "lora")
    folder = tmp_path / "out/policies/coder"
    wider = given(base, "lora", {"coder": folder}).model_copy(update={"rank": 4})
    with pytest.raises(TrainingError, match=r"has rank 2 and alpha 4, .* pass the --rank"):
        initial_policies(wider, ROLES, load(base))
    facts = folder / "training.json"
    facts.write_text(facts.read_text().replace(weights_sha256(base), "0" * 64))
    with pytest.raises(TrainingError, match="coder"):
        initial_policies(given(base, "lora", {"coder": folder}), ROLES, load(base))
    with pytest.raises(TrainingError, match=r"adapter_config\.json cannot be read"):
        initial_policies(given(base, "lora", {"coder": base}), ROLES, load(base))


def test_adapters_with_unsupported_settings_are_refused_with_the_setting(
    base: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="needs make install")
    trained(base, tmp_path, "lora")
    folder = tmp_path / "out/policies/coder"
    config = folder / "adapter_config.json"
    plain = json.loads(config.read_text())
    for name, value in (
        ("use_rslora", True), ("use_dora", True), ("alpha_pattern", {"q_proj": 8}),
        ("rank_pattern", {"q_proj": 1}), ("modules_to_save", ["lm_head"]), ("bias", "all"),
    ):  # fmt: skip
        config.write_text(json.dumps({**plain, name: value}))
        with pytest.raises(TrainingError, match=rf"policies/coder.*{name}"):
            initial_policies(given(base, "lora", {"coder": folder}), ROLES, load(base))

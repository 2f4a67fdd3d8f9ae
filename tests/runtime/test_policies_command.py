"""`runtime policies` on running deployments: one whose scripted engine serves no adapters, and one
that has no workers at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopline.runtime.errors import EXIT_FAILED, EXIT_USAGE
from tests.runtime.conftest import Deployment

pytestmark = pytest.mark.timeout(300)


def test_a_version_that_the_workers_refuse_is_told_with_the_reason_and_can_be_rolled_back(
    shared: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "adapter_model.safetensors").touch()
    process = shared.run("policies", "publish", "slm", str(tmp_path))
    assert process.returncode == EXIT_FAILED
    assert f"slm: version 1 ({tmp_path})" in process.stdout
    assert "refuses version 1, serves 0" in process.stdout
    assert "slm" in shared.ok("policies", "ls")
    output = shared.ok("policies", "rollback", "slm")
    assert "slm: version 0 (the model itself)" in output
    assert "serves version 0" in output
    (policy,) = json.loads(shared.ok("policies", "ls", "--json"))
    assert (policy["name"], policy["current"], len(policy["versions"])) == ("slm", 0, 1)


def test_an_adapter_of_another_base_is_refused_before_anything_is_published(
    deployment: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "training.json").write_text(json.dumps({"base_sha256": "0" * 64}))
    deployment.up(profile="micro", kinds=())
    process = deployment.run("policies", "publish", "slm/caller", str(tmp_path))
    assert process.returncode == EXIT_USAGE
    assert "is an adapter of another base than micro:slm" in process.stderr
    assert "000000000000" in process.stderr
    assert json.loads(deployment.ok("policies", "ls", "--json")) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("publish", "slm", "/nowhere/at/all"), "'/nowhere/at/all' does not exist"),
        (("publish", "slm", ""), "'' does not exist"),
        (("publish", "pink", "."), "there is no pool 'pink'"),
        (("publish", "slm", "/etc"), "holds neither an adapter nor a model"),
        (("pin", "llm", "7"), "no version 7; there are: 0"),
        (("rollback", "llm"), "no other version in use before"),
        (("pin", "slm/a b", "0"), "not a policy's name"),
    ],
)
def test_what_cannot_be_done_is_one_error(
    shared: Deployment, arguments: tuple[str, ...], words: str
) -> None:
    process = shared.run("policies", *arguments)
    assert process.returncode == EXIT_USAGE
    assert process.stderr.count("error: ") == 1
    assert words in process.stderr


def test_a_fork_with_a_policy_of_an_unknown_role_is_refused(shared: Deployment) -> None:
    run_id = shared.ask("What is 6 * 7?")["run"]["id"]
    process = shared.run("runs", "fork", run_id, "--policy", "plannr=llm")
    assert process.returncode == EXIT_USAGE
    assert "did you mean 'planner'?" in process.stderr

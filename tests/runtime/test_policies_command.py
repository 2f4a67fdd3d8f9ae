"""`runtime policies` on running deployments: one whose scripted engine serves no adapters, and one
that has no workers at all."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from loopline.runtime.errors import EXIT_FAILED, EXIT_USAGE
from tests.runtime.conftest import Deployment

pytestmark = pytest.mark.timeout(300)


def test_a_version_that_the_workers_refuse_is_reported_and_can_be_rolled_back(
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


def test_a_canary_that_the_workers_refuse_is_rolled_back_and_the_log_has_the_reason(
    shared: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "adapter_model.safetensors").touch()
    output = shared.ok("policies", "publish", "slm/new", str(tmp_path), "--no-use")
    assert "slm/new: version 0 (the model itself)" in output
    assert "version 1 is kept: `runtime policies canary slm/new@1 --share 10%`" in output
    process = shared.run("policies", "canary", "slm/new@1", "--share", "100%")
    assert process.returncode == EXIT_USAGE
    assert "leaves none to compare it with" in process.stderr
    process = shared.run("policies", "canary", "slm/new@1", "--share", "10%")
    assert process.returncode == EXIT_FAILED
    assert "canary: version 1" in process.stdout
    # The worker's own report, or the log's entry if a recorder has rolled the canary back already.
    why = ": the scripted engine has no weights to adapt"
    reported = f"refuses the canary 1{why}" in process.stdout
    logged = r"replaced: canary rolled back: .*: a worker refuses it: gpu-1\S*" + why
    assert reported or re.search(logged, process.stdout), process.stdout
    deadline = time.monotonic() + 60
    while "canary rolled back" not in (output := shared.ok("policies", "log", "slm/new")):
        assert time.monotonic() < deadline, output
    entries = json.loads(shared.ok("policies", "log", "slm/new", "--json"))
    assert [entry["action"] for entry in entries] == ["canary rolled back", "canary", "add"]
    assert "a worker refuses it" in entries[0]["evidence"]["reason"]
    assert entries[0]["by"].startswith("recorder")
    assert "share of 0.1" in output


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


def test_a_version_that_somebody_replaces_during_the_wait_is_reported_and_the_command_fails(
    deployment: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "adapter_model.safetensors").touch()
    deployment.up(profile="micro", kinds=())
    publishing = deployment.start("policies", "publish", "slm/new", str(tmp_path), "--wait", "60")
    while not json.loads(deployment.ok("policies", "ls", "--json")):
        assert publishing.poll() is None
    deployment.ok("policies", "pin", "slm/new", "0", "--wait", "0")
    output, _ = publishing.communicate(timeout=30)
    assert "slm/new: version 1" in output
    assert "replaced: pin: 0 (previously 1), by " in output
    assert publishing.returncode == EXIT_FAILED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("publish", "slm", "/nowhere/at/all"), "'/nowhere/at/all' does not exist"),
        (("publish", "slm", ""), "'' does not exist"),
        (("publish", "pink", "."), "there is no pool 'pink'"),
        (("publish", "slm", "/etc"), "contains neither an adapter nor a model"),
        (("pin", "llm", "7"), "no version 7; there are: 0"),
        (("rollback", "llm"), "no other version in use before"),
        (("pin", "slm/a b", "0"), "not a policy's name"),
        (("canary", "llm@7", "--share", "10%"), "no version 7; there are: 0"),
        (("canary", "llm@0", "--share", "10%"), "version 0 of policy 'llm' is the one in use"),
        (("canary", "llm@0"), "a canary needs a share of the runs"),
        (("canary", "llm@0", "--share", "0"), "'0' is not a share of the runs"),
        (("canary", "llm@0", "--share", "101%"), "'101%' is not a share of the runs"),
        (("canary", "llm@0", "--share", "nan"), "'nan' is not a share of the runs"),
        (("canary", "llm@0", "--share", "ten"), "'ten' is not a share of the runs"),
        (("canary", "llm@0", "--share", "0.1", "--margin", "2"), "--margin: Input should be less"),
        (("canary", "llm@0", "--share", "0.1", "--runs", "0"), "--runs: Input should be greater"),
        (("canary", "pink@1", "--share", "10%"), "there is no pool 'pink'"),
        (("canary", "llm", "--share", "10%"), "name the version of 'llm' to try"),
        (("canary", "llm"), "policy 'llm' has no canary"),
        (("canary", "llm", "--stop"), "policy 'llm' has no canary"),
        (("canary", "llm@1", "--stop"), "--stop takes no version"),
    ],
)
def test_an_invalid_command_is_one_error(
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

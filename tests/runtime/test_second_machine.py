"""A second machine, here another state directory on the same Redis, serves the deployment's
configuration or is refused with the reason."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loopline.runtime.config.settings import load, load_for_remote_deployment
from loopline.runtime.config.shared import (
    differences,
    require_passwords,
    require_same,
    shared_configuration,
)
from loopline.runtime.errors import EXIT_CONFIG, UserError
from loopline.testing import RedisProcess
from tests.runtime.conftest import Deployment, changes, until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def machines(any_server: RedisProcess) -> Iterator[tuple[Deployment, Deployment]]:
    around = {
        "LOOPLINE_BUS__REDIS_URL": any_server.url,
        "LOOPLINE_BUS__PREFIX": f"t{uuid.uuid4().hex[:8]}",
    }
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        first, second = (Deployment(Path(folder) / name) for name in ("a", "b"))
        for machine in (first, second):
            machine.environ |= around
        yield first, second
        for machine in (first, second):
            machine.end()


@pytest.mark.slow
def test_a_second_machine_serves_the_same_configuration_or_is_refused(
    machines: tuple[Deployment, Deployment],
) -> None:
    first, second = machines
    first.up("models.slm.max_tokens=77", kinds=("recorder",))
    second.start("worker", "gpu")
    [worker] = until(
        lambda: [
            w for w in first.status()["workers"] if w["kind"] == "gpu" and w["state"] == "ready"
        ],
        "gpu worker of the second machine",
    )
    assert worker["details"]["models"]["slm"] == "scripted-slm"

    process = second.run("worker", "gpu", "--profile", "micro")
    assert process.returncode == EXIT_CONFIG, process.stderr
    assert 'models.slm.engine is "scripted" in the deployment' in process.stderr
    assert 'this process sets "torch"' in process.stderr
    named = second.run("worker", "gpu", "--set", "models.slm.max_tokens=78")
    assert named.returncode == EXIT_CONFIG
    assert "models.slm.max_tokens is 77 in the deployment, and this process sets 78" in named.stderr

    again = second.run("up", "--detach", "--profile", "scripted", *changes(("recorder",)))
    assert again.returncode == EXIT_CONFIG, again.stdout
    assert "runs are recorded in" in again.stderr
    assert str(first.state.store) in again.stderr
    recorder = second.run("worker", "recorder")
    assert recorder.returncode == EXIT_CONFIG
    assert str(first.state.store) in recorder.stderr


def test_a_stopped_deployment_may_start_elsewhere_with_other_settings(
    machines: tuple[Deployment, Deployment],
) -> None:
    first, second = machines
    first.up(kinds=("recorder",))
    first.ok("down")
    second.up("models.slm.max_tokens=78", kinds=("recorder",))
    assert [worker["kind"] for worker in second.status()["workers"]] == ["recorder"]


def test_only_settings_that_concern_one_machine_may_differ() -> None:
    here = shared_configuration(load("scripted", environ={}), "scripted")
    local = ("models.slm.threads=4", "workers.slm.count=3", "logging.level=debug")
    local_settings = load("scripted", overrides=local, environ={})
    require_same(shared_configuration(local_settings, "scripted"), here)
    other_configuration = shared_configuration(
        load("scripted", overrides=("models.slm.temperature=1",), environ={}), "scripted"
    )
    assert list(differences(other_configuration, here)) == [
        "models.slm.temperature is null in the deployment, and this process sets 1.0"
    ]
    with pytest.raises(UserError, match=r"models\.slm\.temperature"):
        require_same(other_configuration, here)


def test_a_setting_unknown_to_one_version_is_a_difference_only_if_it_is_set() -> None:
    """The configuration on the bus lacks a setting or has one more, as another version's would."""
    here = shared_configuration(load("scripted"), "scripted")
    older_defaults = json.loads(json.dumps(here.defaults))
    del older_defaults["models"]["slm"]["price"]["cached"]
    older = replace(here, defaults=older_defaults)
    require_same(here, older)
    require_same(older, here)

    later_defaults = json.loads(json.dumps(here.defaults))
    later_defaults["models"]["slm"]["price"]["later"] = 0.0
    later = replace(here, defaults=later_defaults)
    require_same(here, later)
    named_values = json.loads(json.dumps(here.values))
    named_values["models"]["slm"]["price"] = {"later": 1.5}
    with pytest.raises(UserError, match=r"models.slm.price.later is 1.5 in the deployment"):
        require_same(here, replace(later, values=named_values, digest="other"))


def test_a_default_that_differs_between_versions_is_a_difference() -> None:
    here = shared_configuration(load("scripted"), "scripted")
    defaults = json.loads(json.dumps(here.defaults))
    defaults["models"]["slm"]["timeout_seconds"] += 1
    with pytest.raises(UserError, match=r"models.slm.timeout_seconds is 601"):
        require_same(here, replace(here, defaults=defaults))


def test_the_shared_configuration_has_full_paths_and_no_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    settings = load(
        "scripted",
        overrides=(
            "models.slm.engine=llama_cpp", "models.slm.model=m.gguf", "models.llm.engine=openai",
            "models.llm.base_url=http://me:s3cr3t@host:1/v1",
        ),
        environ={},
    )  # fmt: skip
    shared = shared_configuration(settings, "scripted")
    assert shared.values["models"]["slm"]["model"] == str(tmp_path / "m.gguf")
    assert "s3cr3t" not in shared.text()
    assert shared.values["models"]["llm"]["base_url"] == "http://***@host:1/v1"
    elsewhere = load_for_remote_deployment(shared.values, redis_url="redis://host", environ={})
    with pytest.raises(UserError, match="LOOPLINE_MODELS__LLM__BASE_URL"):
        require_passwords(elsewhere)
    require_passwords(settings)

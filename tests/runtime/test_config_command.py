"""`runtime config`: TOML that can be used again, with every key explained and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runtime.conftest import Deployment

pytestmark = pytest.mark.timeout(300)


def test_config_prints_toml_that_can_be_used_as_a_profile(
    nowhere: Deployment, tmp_path: Path
) -> None:
    profile = tmp_path / "own.toml"
    base = tmp_path / "base.toml"
    base.write_text('extends = "micro"\n[models."qwen2.5"]\nengine = "scripted"\nmodel = "q"\n')
    arguments = ("config", "--profile", str(base), "--set", "workers.slm.count=9")
    profile.write_text(nowhere.ok(*arguments))
    again = json.loads(nowhere.ok("config", "--profile", str(profile), "--json"))
    assert again == json.loads(nowhere.ok(*arguments, "--json"))
    assert again["workers"]["slm"]["count"] == 9
    assert "qwen2.5" in again["models"]


def test_every_key_of_the_configuration_is_printed_with_its_meaning(nowhere: Deployment) -> None:
    lines = nowhere.ok("config", "--keys").splitlines()
    for key, meaning in zip(lines, [*lines[1:], ""], strict=True):
        assert key.startswith("    ") or meaning.startswith("    "), key


def test_config_and_doctor_hide_passwords_and_keys(nowhere: Deployment) -> None:
    environ = {
        "LOOPLINE_BUS__REDIS_URL": "redis://:the-password@127.0.0.1:1/0",
        "OPENAI_API_KEY": "sk-aaaaaaaaaaaaaaaaaaaaaaaa",
    }
    output = nowhere.ok("config", "-p", "delegate", env=environ)
    output += nowhere.run("doctor", "-p", "delegate", env=environ).stdout
    assert "the-password" not in output
    assert "sk-aaaa" not in output
    assert "***@127.0.0.1:1" in output

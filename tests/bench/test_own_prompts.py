"""A benchmark on a deployment with prompts of its own says so, and goes on with no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.arms import parse_arms
from bench.errors import UsageError
from bench.output import OutputDirectory
from bench.session import resume, with_deployment
from runtime import config
from tests.bench.benchmarks import items, manifest

OWN = "---\nname: solo\nversion: 2\n---\nAnswer in one word.\n"


def profile(folder: Path) -> Path:
    (folder / "solo.md").write_text(OWN)
    (folder / "planner.md").write_text(OWN.replace("solo", "planner"))
    path = folder / "own.toml"
    path.write_text('extends = "scripted"\n[prompts]\nsolo = "solo.md"\nplanner = "planner.md"\n')
    return path


def test_a_benchmark_knows_the_prompts_of_its_arms_and_is_not_resumed_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config.load(str(profile(tmp_path)), environ={})
    made = manifest(items(2)).model_copy(update={"arms": ("llm",), "benchmark": "gsm8k"})
    known = with_deployment(made, parse_arms("llm"), settings)
    assert known.prompts.keys() == {"solo.md"}
    OutputDirectory(tmp_path / "out").create(known)
    monkeypatch.setenv("SWITCHYARD_BUS__REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("SWITCHYARD_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SWITCHYARD_PROFILE", "scripted")
    with pytest.raises(UsageError, match=r"began with the prompts solo\.md .*the shipped prompts"):
        resume(tmp_path / "out")

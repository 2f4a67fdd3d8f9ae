"""A benchmark records the prompts and policies of the deployment that it started on, and does not
resume with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.bench.arms import QUESTION_ARMS
from loopline.bench.deployments import add_deployment
from loopline.bench.errors import UsageError
from loopline.bench.output import Manifest, OutputDirectory
from loopline.bench.registry import find
from loopline.bench.session import resume
from loopline.runtime.config import settings as config
from tests.bench.benchmarks import items, manifest

OWN = "---\nname: solo\nversion: 2\n---\nAnswer in one word.\n"


def profile(folder: Path) -> Path:
    (folder / "solo.md").write_text(OWN)
    (folder / "planner.md").write_text(OWN.replace("solo", "planner"))
    path = folder / "own.toml"
    path.write_text('extends = "scripted"\n[prompts]\nsolo = "solo.md"\nplanner = "planner.md"\n')
    return path


def test_a_benchmark_records_its_prompts_and_does_not_resume_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config.load(str(profile(tmp_path)), environ={})
    base = manifest(items(2)).model_copy(update={"arms": ("llm",), "benchmark": "gsm8k"})
    known_manifest = add_deployment(base, QUESTION_ARMS.parse("llm"), settings)
    assert known_manifest.prompts.keys() == {"solo.md"}
    OutputDirectory(tmp_path / "out").create(known_manifest)
    running(monkeypatch, tmp_path, "scripted")
    with pytest.raises(
        UsageError, match=r"started with the prompts solo\.md .*the shipped prompts"
    ):
        resume(tmp_path / "out")


def running(monkeypatch: pytest.MonkeyPatch, folder: Path, profile: str) -> None:
    """Make `resume` find this deployment."""
    monkeypatch.setenv("LOOPLINE_BUS__REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("LOOPLINE_STATE", str(folder / "state"))
    monkeypatch.setenv("LOOPLINE_PROFILE", profile)


def begun_without_adapter() -> Manifest:
    """A benchmark of a team whose tool agent was the bare model; in `petting` an adapter plays
    it."""
    settings = config.load("petting", environ={})
    bare = settings.model_copy(update={"policies": {**settings.policies, "tool_agent": "pair"}})
    base_manifest = manifest(items(1)).model_copy(
        update={
            "arms": ("pair",),
            "benchmark": "puzzles",
            "origin": None,
            "reference": {"game": "sudoku"},
        }
    )
    return add_deployment(
        base_manifest, find("puzzles").parse_arms("pair", base_manifest.reference), bare
    )


def test_a_benchmark_does_not_resume_with_another_policy_for_a_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it is an adapter of the same model: one arm would be two systems."""
    OutputDirectory(tmp_path / "out").create(begun_without_adapter())
    running(monkeypatch, tmp_path, "petting")
    pattern = r"policy 'pair' as role 'tool_agent' of arm pair; .* has 'pair/tool'\. .*\[policies\]"
    with pytest.raises(UsageError, match=pattern):
        resume(tmp_path / "out")


def test_a_manifest_without_policies_is_still_compared_by_its_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompts are compared after the policies."""
    old = {"policies": {}, "prompts": {"solo.md": "0" * 64}}
    OutputDirectory(tmp_path / "out").create(begun_without_adapter().model_copy(update=old))
    running(monkeypatch, tmp_path, "petting")
    with pytest.raises(UsageError, match="started with the prompts"):
        resume(tmp_path / "out")

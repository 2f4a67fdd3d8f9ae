"""The three roles on a running deployment, as adapters or models: its gpu worker loads or refuses
them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loopline.trainers.core.publishing import publish
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.pipeline import claim, train
from loopline.trainers.glpft.publishing import publications, require_publishable
from loopline.trainers.glpft.report import Report
from loopline.trainers.glpft.stages import ROLES
from tests.runtime.conftest import Deployment
from tests.runtime.conftest import deployment as deployment

from .tiny_glpft import DATA, changed

pytestmark = pytest.mark.slow

IDLE = tuple(
    f"workers.{kind}.count=0"
    for kind in ("planner", "caller", "summarizer", "tool", "recorder", "jobs")
)
"""Only the gpu worker receives requests here."""


@pytest.fixture
def serving(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Report]:
    """A deployment that serves the trained backbone; its adapters are not yet published."""
    pytest.importorskip("peft", reason="needs make install")
    folder = tmp_path / "out"
    report = train(changed(weights="lora-roles", tokens=6_000, rank=4), DATA, folder)
    monkeypatch.setenv("LOOPLINE_STATE", str(deployment.state.path))
    deployment.up(f"models.umi.model={folder / 'backbone'}", *IDLE, profile="umi")
    return folder, report


def test_running_workers_serve_the_three_adapters_and_refuse_those_of_another_base(
    serving: tuple[Path, Report], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, report = serving
    first, *others = publications(report, folder, "umi")
    foreign = replace(others[1], base_sha256="0" * 64)
    with pytest.raises(TrainingError, match=r"summarizer is an adapter of another base than .*out"):
        publish((first, others[0], foreign), folder, None, 60)
    with pytest.raises(TrainingError, match="there is no pool 'pink'; pools: umi"):
        publish(publications(report, folder, "pink"), folder, None, 60)
    publish((first, *others), folder, None, 60)
    output = capsys.readouterr().out
    for role in ROLES:
        # Version 1: nothing of the refused set was published.
        [version_folder] = (folder / "published").glob(f"*/{role}")
        assert f"umi/{role}: version 1 ({version_folder})" in output
        files = {path.name: path.read_bytes() for path in (folder / role).iterdir()}
        assert {path.name: path.read_bytes() for path in version_folder.iterdir()} == files
    assert output.count("serves version 1") == 3
    # It is served from there, so a repeated training takes nothing from the deployment.
    claim(changed(weights="lora-roles", tokens=6_000, rank=4), DATA, folder, restart=True)
    assert not (folder / "caller").exists()
    assert len(list((folder / "published").glob("*/*/adapter_model.safetensors"))) == 3


def test_running_workers_serve_whole_models_that_were_trained_from_their_own(
    serving: tuple[Path, Report], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = serving
    settings = changed(base=str(folder / "backbone"), tokens=6_000)
    whole = tmp_path / "whole"
    report = train(settings, DATA, whole)
    publish(publications(report, whole, "umi"), whole, None, 60)
    assert capsys.readouterr().out.count("serves version 1") == 3
    (whole / "caller/tokenizer.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"its tokenizer.json differs"):
        publish(publications(report, whole, "umi"), whole, None, 60)


def test_three_roles_or_one_multi_task_adapter_are_published_as_three_policies(
    tmp_path: Path,
) -> None:
    report = train(changed(tokens=6_000), DATA, tmp_path / "out")
    entries = publications(report, tmp_path / "out", "umi")
    assert [(publication.policy, publication.folder.name) for publication in entries] == [
        (f"umi/{role}", role) for role in ROLES
    ]
    multitask_report = report.model_copy(
        update={"stages": (report.stages[0].model_copy(update={"stage": "multitask"}),)}
    )
    assert {
        publication.folder.name for publication in publications(multitask_report, tmp_path, "umi")
    } == {"multitask"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"method": "single"}, "writes no turns of a planner"), ({}, "has its own tokenizer")],
)
def test_an_unpublishable_training_is_refused_before_it_starts(
    changes: dict[str, str], message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        require_publishable(changed(**changes))

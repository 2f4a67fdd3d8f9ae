"""`--track` for trainings that fit or search: a router, a prompt, an arm of the demonstration."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.agents.prompts import parse_prompt, prompt_file
from loopline.agents.records import Outcome
from loopline.runtime.config.options import validated
from loopline.runtime.observe.result_folders import scan
from loopline.trainers.cli import app
from loopline.trainers.core import curves as curves_module
from loopline.trainers.core.curves import TRACKERS, Curves
from loopline.trainers.distill.options import DistillOptions
from loopline.trainers.grpo.demo.settings import DemoOptions
from loopline.trainers.improve.options import ImproveOptions
from loopline.trainers.prompts.candidates import CURRENT, Candidate
from loopline.trainers.prompts.drawing import DrawnSearch
from loopline.trainers.prompts.options import PromptsOptions
from loopline.trainers.prompts.playing import FinishedRun
from loopline.trainers.prompts.search import Arm
from loopline.trainers.router.labelled import read_labelled
from loopline.trainers.router.options import RouterOptions
from loopline.trainers.router.training import train_router
from loopline.trainers.sft.options import SftOptions
from tests.trainers.curves_of_tensorboard import of_tensorboard
from tests.trainers.labelled_answers import labelled_rows, write_rows


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    return write_rows(folder / "labelled.jsonl", labelled_rows(200, signal=True))


def train(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments])
    message = "" if done.exception is None else str(done.exception)
    return done.exit_code, done.output + message


def test_a_router_s_risk_is_plotted_over_the_accepted_answers(labels: Path, tmp_path: Path) -> None:
    output = tmp_path / "cascade.router.json"
    code, text = train("router", str(output), "--data", str(labels), "--track", "tensorboard")
    assert code == 0, text
    drawn = dict(of_tensorboard(tmp_path / "curves" / "cascade.router", "share accepted"))
    assert 0 in drawn
    assert scan(tmp_path).trainings == ["."], "the dashboard finds them"
    points: list[tuple[int, dict[str, float]]] = []
    router = train_router(
        read_labelled(labels), alpha=0.1, delta=0.05, seed=123, where="labels",
        draw=lambda accepted, values: points.append((accepted, values)),
    )  # fmt: skip
    accepted = [at for at, _ in points]
    assert accepted == sorted(set(accepted))
    shares = [values["share accepted and wrong"] for _, values in points]
    assert shares == sorted(shares)
    dollars = [values["dollars per question"] for _, values in points]
    assert dollars == sorted(dollars, reverse=True), "each accepted answer saves the big model"
    by_count = dict(points)
    promise = router.guarantee
    if promise.accepted in by_count:
        wrong = by_count[promise.accepted]["share accepted and wrong"]
        assert round(wrong * promise.calibration) == promise.wrong


def test_a_router_writes_no_curves_unless_requested(labels: Path, tmp_path: Path) -> None:
    code, text = train("router", str(tmp_path / "a.json"), "--data", str(labels))
    assert code == 0, text
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_prompt_search_has_a_curve_for_each_prompt(tmp_path: Path) -> None:
    prompt = parse_prompt(prompt_file("solo", 1, "Answer."), origin="test")
    arms = [Arm(Candidate(label, "test", prompt, None)) for label in (CURRENT, "other")]
    with DrawnSearch(tmp_path, ("tensorboard",)) as drawn:
        drawn.round("solo", 10, _played(arms, 2))
        drawn.round("solo", 30, _played(arms[1:], 4))
    best = of_tensorboard(tmp_path / "curves" / "solo", "solved by the best candidate")
    assert best == [(10, 0.5), (30, 0.5)]
    current = of_tensorboard(tmp_path / "curves" / "solo", "solved by the prompt in force")
    assert current == [(10, 0.5)]
    with DrawnSearch(tmp_path / "other", ()) as drawn:
        drawn.round("solo", 10, arms)
    assert not (tmp_path / "other").exists()


def _played(arms: list[Arm], runs: int) -> list[Arm]:
    for arm in arms:
        arm.played = [
            FinishedRun.model_construct(
                fault="" if number % 2 else "wrong", tokens=10, outcome=Outcome.ANSWERED
            )
            for number in range(runs)
        ]
    return arms


def test_every_training_selects_its_trackers_with_the_same_option(tmp_path: Path) -> None:
    common = {"output": tmp_path, "track": "mlflow"}
    for options, more in (
        (SftOptions, {"model": "micro-slm"}),
        (DistillOptions, {"model": "micro:slm", "from_store": tmp_path}),
        (RouterOptions, {"data": "x.jsonl"}),
        (PromptsOptions, {"workflow": "solo"}),
        (DemoOptions, {}),
        (ImproveOptions, {}),
    ):
        assert validated(options, {**common, **more}).trackers == ("mlflow",), options.__name__


def test_a_training_without_parts_is_named_after_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    class Noted:
        def __init__(self, folder: Path, step: int, run: str) -> None:
            names.append(run)

        def add(self, step: int, values: object) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setitem(TRACKERS, "tensorboard", Noted)
    monkeypatch.chdir(tmp_path)
    for folder in ("seed-1/at-grpo/curves", "runs/chat/curves/sft", "curves/router"):
        with Curves(Path(folder), 0):
            pass
    assert names == ["seed-1/at-grpo", "chat/sft", f"{tmp_path.name}/router"]


def test_a_missing_package_is_reported_before_a_router_reads_its_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(curves_module, "import_module", absent)
    code, text = train(
        "router", str(tmp_path / "a.json"), "--data", "nowhere.jsonl", "--track", "wandb"
    )
    assert code != 0
    assert "need the package wandb" in text


@pytest.mark.slow
def test_weights_and_biases_keeps_a_router_s_curve_offline(
    labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="needs make test, which installs it")
    pytest.importorskip("mlflow", reason="needs make test, which installs it")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    output = tmp_path / "a.router.json"
    code, text = train("router", str(output), "--data", str(labels), "--track", "wandb,mlflow")
    assert code == 0, text
    folder = tmp_path / "curves" / "a.router"
    assert list((folder / "wandb").glob("offline-run-*"))
    [metric] = (folder / "mlflow").glob("*/*/metrics/share accepted")
    assert len(metric.read_text().splitlines()) > 2
    assert json.loads(output.read_bytes())
    assert "WANDB_MODE" in os.environ

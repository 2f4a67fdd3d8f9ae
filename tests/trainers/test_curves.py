"""Curves of a training in TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopline.runtime.config.options import validated
from loopline.runtime.errors import InputError
from loopline.trainers.core import curves
from loopline.trainers.core.command_options import TrackingOptions
from loopline.trainers.core.curves import Curves, require_trackers
from loopline.trainers.errors import TrainingError
from tests.trainers.curves_of_tensorboard import of_tensorboard

DRAW = """
import sys
from pathlib import Path
from loopline.trainers.core.curves import Curves
folder, step, *trackers = sys.argv[1:]
with Curves(Path(folder), int(step), tuple(trackers)) as drawn:
    for number in range(int(step) + 1, int(step) + 3):
        drawn.add(number, {"loss": 1 / number, "reward/team": float(number)})
"""


def draw(folder: Path, step: int, *trackers: str) -> None:
    """In a separate process, as a resumed training would be."""
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    words = [sys.executable, "-P", "-c", DRAW, str(folder), str(step), *trackers]
    subprocess.run(words, env=environment, check=True, capture_output=True, timeout=120)


@pytest.mark.slow
def test_a_resumed_training_continues_its_mlflow_run(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs make test, which installs it")
    folder = tmp_path / "out" / "curves" / "coder"
    draw(folder, 0, "tensorboard", "mlflow")
    draw(folder, 2, "tensorboard", "mlflow")
    assert [step for step, _ in of_tensorboard(folder)] == [1, 2, 3, 4]
    (metric,) = (folder / "mlflow").glob("*/*/metrics/loss")
    rows = [line.split() for line in metric.read_text().splitlines()]
    assert [(int(step), float(value)) for _, value, step in (row[:3] for row in rows)] == [
        (number, 1 / number) for number in range(1, 5)
    ]
    (team,) = (folder / "mlflow").glob("*/*/metrics/reward/team")
    assert len(team.read_text().splitlines()) == 4


@pytest.mark.slow
def test_a_resumed_training_continues_its_weights_and_biases_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs make test, which installs it")
    folder = tmp_path / "out" / "curves" / "coder"
    draw(folder, 0, "wandb")
    draw(folder, 2, "wandb")
    run_id = (folder / "wandb" / "run-id").read_text().strip()
    files = sorted((folder / "wandb").glob(f"offline-run-*-{run_id}/run-{run_id}.wandb"))
    assert len(files) == 2
    assert [step for path in files for step in _steps(path)] == [1, 2, 3, 4]


def _steps(path: Path) -> list[int]:
    """The history in a file that `wandb sync` sends: a LevelDB log of records."""
    messages: Any = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    content, at, steps = path.read_bytes(), 7, list[int]()
    whole = b""
    while at + 7 <= len(content):
        if content[at : at + 7] == bytes(7) or 0x8000 - at % 0x8000 < 7:
            at += 0x8000 - at % 0x8000
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        # 1 is a complete record, 4 the last part of one.
        if kind in (1, 4):
            record = messages.Record()
            record.ParseFromString(whole)
            whole = b""
            steps += [
                json.loads(item.value_json)
                for item in record.history.item
                if (item.key or "/".join(item.nested_key)) == "step"
            ]
    return steps


def test_a_restarted_training_is_a_new_run(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "curves" / "coder"
    (folder / "wandb").mkdir(parents=True)
    (folder / "wandb" / "run-id").write_text("earlier")
    with Curves(folder, 0, ()):
        assert not folder.exists()


@pytest.mark.parametrize(
    ("tracker", "hint"), [("wandb", "wandb"), ("mlflow", "mlflow"), ("tensorboard", "train")]
)
def test_a_missing_package_is_reported_before_the_training(
    tracker: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(curves, "import_module", absent)
    with pytest.raises(TrainingError, match=rf"need the package {tracker}.*\[{hint}\]"):
        require_trackers((tracker,))


def test_trackers_are_chosen_by_name() -> None:
    assert validated(TrackingOptions, {}).trackers == ("tensorboard",)
    options = validated(TrackingOptions, {"track": "wandb, mlflow,wandb"})
    assert options.trackers == ("wandb", "mlflow")
    assert validated(TrackingOptions, {"track": ""}).trackers == ()
    with pytest.raises(InputError, match="there is no 'comet'; there are: tensorboard, wandb"):
        validated(TrackingOptions, {"track": "comet"})


@pytest.mark.slow
def test_an_unreachable_tracking_server_is_a_training_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="needs make test, which installs it")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrainingError, match=r"--track mlflow: .*MLFLOW_TRACKING_URI"):
        Curves(tmp_path / "curves" / "coder", 0, ("mlflow",))

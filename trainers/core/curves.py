"""A training's curves, for TensorBoard, Weights & Biases and MLflow.

    CURVES/events.out.tfevents.…    TensorBoard: after a resume, points beyond the
                                    checkpoint are withdrawn
    CURVES/wandb/                   Weights & Biases: data not sent yet, and the run's id
    CURVES/mlflow/                  MLflow's file store, unless MLFLOW_TRACKING_URI names another

Each name of a tracker is a run of its own there. After a resume, Weights & Biases and MLflow
continue the run, and keep points beyond the checkpoint next to the new ones.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

from loopline.trainers.errors import TrainingError
from loopline.workers.atomic_files import write_atomic
from loopline.workers.installation import install_hint

PROJECT = "loopline"
"""Default name of the Weights & Biases project and of the MLflow experiment, unless their
environment variables set one."""
FOLDER = "curves"
"""Subfolder of a training's folder for its curves."""
_RUN_ID = "run-id"


class Tracker(Protocol):
    """Destination of scalars, opened by `TRACKERS[name](folder, step, run)`."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Draw values, by the name of their curve."""
        ...

    def close(self) -> None: ...


class _TensorBoard:
    def __init__(self, folder: Path, step: int, run: str) -> None:
        module: Any = _module("torch.utils.tensorboard.writer", "tensorboard", "train")
        self._writer = module.SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    """WANDB_MODE=offline keeps a run on this machine, for `wandb sync`."""

    def __init__(self, folder: Path, step: int, run: str) -> None:
        wandb: Any = _module("wandb", "wandb", "wandb")
        home = folder / "wandb"
        home.mkdir(parents=True, exist_ok=True)
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                dir=str(folder),
                id=_run_id(home, lambda: uuid.uuid4().hex),
                name=run,
                resume="allow",
                # A training has several runs at once: none of them is the global run of the
                # process.
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off"),
            )
        except (wandb.Error, OSError) as error:
            raise TrainingError(
                f"--track wandb: {error}; log in with `wandb login`, or set WANDB_MODE=offline"
            ) from error
        # Otherwise values of a step before the last one would be dropped, and a resume draws such
        # values.
        self._run.define_metric("*", step_metric="step")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    def __init__(self, folder: Path, step: int, run: str) -> None:
        home = folder / "mlflow"
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            home.mkdir(parents=True, exist_ok=True)
            uri = home.absolute().as_uri()
            # A folder of files needs no database or server; MLflow requires this variable for it.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        tracking: Any = _module("mlflow.tracking", "mlflow-skinny", "mlflow")
        entities: Any = _module("mlflow.entities", "mlflow-skinny", "mlflow")
        self._failure: Any = _module("mlflow.exceptions", "mlflow-skinny", "mlflow").MlflowException
        self._metric = entities.Metric
        self._client = tracking.MlflowClient(tracking_uri=uri)

        def begin() -> str:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self._client.get_experiment_by_name(name)
            key = experiment.experiment_id if experiment else self._client.create_experiment(name)
            return self._client.create_run(key, run_name=run).info.run_id

        try:
            home.mkdir(parents=True, exist_ok=True)
            self._run = _run_id(home, begin)
            self._client.update_run(self._run, status="RUNNING")
        except (self._failure, OSError) as error:
            raise self._error(error) from error

    def add(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        try:
            self._client.log_batch(
                self._run,
                [self._metric(_spelled(name), value, now, step) for name, value in values.items()],
            )
        except (self._failure, OSError) as error:
            raise self._error(error) from error

    def close(self) -> None:
        self._client.set_terminated(self._run)

    def _error(self, error: Exception) -> TrainingError:
        return TrainingError(
            f"--track mlflow: {error}; check that the server at MLFLOW_TRACKING_URI is running. "
            "The same command resumes from the last checkpoint"
        )


TRACKERS: dict[str, Callable[[Path, int, str], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _WeightsAndBiases,
    "mlflow": _MLflow,
}
DEFAULT_TRACKERS = ("tensorboard",)


class Curves:
    """Context manager that writes the scalars of one training below `folder`, for each tracker;
    does nothing if `folder` is None. Raises TrainingError for a tracker whose package is not
    installed."""

    def __init__(
        self, folder: Path | None, step: int, trackers: tuple[str, ...] = DEFAULT_TRACKERS
    ) -> None:
        self._trackers: list[Tracker] = []
        self._open = ExitStack()
        if folder is None:
            return
        if step == 0:
            shutil.rmtree(folder, ignore_errors=True)
        whole, part = folder.absolute().parent, folder.name
        # A training without parts draws into the folder of the curves itself.
        run = f"{whole.parent.name}/{whole.name if part == FOLDER else part}"
        try:
            for name in trackers:
                tracker = TRACKERS[name](folder, step, run)
                self._open.callback(tracker.close)
                self._trackers.append(tracker)
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Draw values, by the name of their curve."""
        for tracker in self._trackers:
            tracker.add(step, values)


def require_trackers(trackers: tuple[str, ...]) -> None:
    """Raise TrainingError for a tracker whose package is not installed, before a training
    starts."""
    for name in trackers:
        module, package, extra = {
            "tensorboard": ("tensorboard", "tensorboard", "train"),
            "wandb": ("wandb", "wandb", "wandb"),
            "mlflow": ("mlflow", "mlflow-skinny", "mlflow"),
        }[name]
        _module(module, package, extra)


def _module(name: str, package: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise TrainingError(
            f"the curves need the package {package}; {install_hint(extra)}"
        ) from error


def _spelled(name: str) -> str:
    """The name of a curve in the characters that MLflow accepts."""
    return re.sub(r"[^A-Za-z0-9_.:/ -]", "_", name.replace("%", " percent"))


def _run_id(home: Path, begin: Callable[[], str]) -> str:
    """Id of the run that an earlier process of this training started, or of a new one."""
    path = home / _RUN_ID
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    run_id = begin()
    write_atomic(path, run_id + "\n")
    return run_id

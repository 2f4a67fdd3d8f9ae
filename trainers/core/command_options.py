"""Options that several training commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from loopline.runtime.config.options import Argument, OnlyWith, Option, Options, toml_of
from loopline.runtime.config.sources import URL_VARIABLE
from loopline.trainers.core.curves import DEFAULT_TRACKERS, TRACKERS
from loopline.trainers.core.output_folder import guard_disk_writes
from loopline.workers.atomic_files import write_atomic


class FolderOptions(Options):
    """Folder that a training writes to, how it resumes and how it starts over."""

    output: Annotated[Path, Argument()]
    """Folder for checkpoints and results. The same command resumes from it."""
    restart: bool = False
    """Discard previous progress in OUTPUT and start over."""

    def record(self) -> None:
        """Write all options into the folder, as a file for `--config`. Raises `NotEnoughDisk`."""
        path = self.output / "options.toml"
        with guard_disk_writes(path):
            write_atomic(path, "\n".join(toml_of(self)) + "\n")


class TrackingOptions(Options):
    """Trackers that draw a training's curves."""

    track: Annotated[str, Option(metavar="NAME,…")] = ",".join(DEFAULT_TRACKERS)
    """Trackers of the curves: tensorboard, wandb, mlflow."""

    @field_validator("track")
    @classmethod
    def _names_trackers(cls, track: str) -> str:
        names = [name.strip() for name in track.split(",") if name.strip()]
        unknown = [name for name in names if name not in TRACKERS]
        if unknown:
            raise ValueError(f"there is no {unknown[0]!r}; there are: {', '.join(TRACKERS)}")
        return ",".join(dict.fromkeys(names))

    @property
    def trackers(self) -> tuple[str, ...]:
        """Names of the trackers; empty if --track is empty."""
        return tuple(filter(None, self.track.split(",")))


class ChosenTrackingOptions(TrackingOptions):
    """Trackers of a command that draws curves only on request."""

    track: Annotated[str, Option(metavar="NAME,…", default="none")] = ""
    """Trackers of the curves: tensorboard, wandb, mlflow."""


class JsonOptions(Options):
    """Final output of a command."""

    as_json: Annotated[bool, Option("json")] = False
    """Print one line of JSON at the end."""


def _publishes(options: Any) -> bool:
    return getattr(options, "publish", True)


def _elsewhere(options: Any) -> bool:
    return options.redis_url is not None or URL_VARIABLE in os.environ


_PUBLISHED = OnlyWith("--publish", _publishes)


class DeploymentOptions(Options):
    """The running deployment that a training uses: always, or only with `--publish`."""

    panel: ClassVar[str] = "Deployment"

    redis_url: Annotated[str | None, _PUBLISHED] = None
    """Redis of the deployment; the default is the deployment of this machine's state directory."""
    profile: Annotated[
        str | None,
        Option(short="-p"),
        OnlyWith(f"--redis-url, or with {URL_VARIABLE} in the environment", _elsewhere),
    ] = None
    """Profile that the deployment at --redis-url was started with."""


class PublishingOptions(DeploymentOptions):
    """The running deployment that a training publishes to."""

    wait: Annotated[float, _PUBLISHED] = Field(default=60.0, ge=0)
    """Seconds to wait for workers to load each published adapter."""

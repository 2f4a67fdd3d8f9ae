"""Data that trainings write while they run: curves for TensorBoard, and the groups of each
round."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopline.runtime.errors import UserError
from loopline.runtime.observe.result_folders import CURVES, read_object
from loopline.runtime.terminal.pages.curves import Point
from loopline.workers.installation import install_hint

MAX_POINTS = 200_000
"""Most points of one folder of events; further ones are not drawn."""
MAX_ROUNDS = 10_000
MAX_GROUPS = 200
_ORIGIN = re.compile(r"(?P<run>[^/]+)/(?P<turn>\d+)\.(?P<branch>\d+)/(?P<agent>.+)#(?P<number>\d+)")

Series = Mapping[str, Sequence[tuple[int, float]]]
"""Steps and values by name of a curve, in the order of the steps."""


@dataclass(frozen=True)
class Member:
    """One sample of a group: a candidate of a step of a run."""

    run_id: str
    turn: int
    branch: int
    agent: str
    candidate: int
    reward: float


@dataclass(frozen=True)
class Group:
    """Samples that were compared with each other."""

    key: str
    policy: str
    version: int
    fate: str
    """Whether the group was learned from, or why not."""
    members: Sequence[Member]


def last_change(training: Path) -> float:
    """Time at which its curves were last written, in Unix seconds; 0 where they can't be read."""
    times = [0.0]
    for folder in _event_folders(training):
        for path in _event_files(folder):
            try:
                times.append(path.stat().st_mtime)
            except OSError:
                continue
    return max(times)


def stamp_of(trainings: Sequence[Path]) -> str:
    """Stamp of the trainings' curves, which changes as soon as one of them grows."""
    digest = hashlib.blake2b(digest_size=8)
    for training in trainings:
        for folder in _event_folders(training):
            for path in _event_files(folder):
                try:
                    digest.update(f"{path}\0{path.stat().st_size}\0".encode())
                except OSError:
                    continue
    return digest.hexdigest()


class CurveReader:
    """Reads the curves of a training that is running: only the new data of growing files."""

    def __init__(self, training: Path) -> None:
        self._training = training
        self._folders: dict[Path, _EventFolder] = {}
        self._lock = threading.Lock()
        """Lock, since an aborted page leaves its reading thread running."""

    def read(self) -> dict[str, Series]:
        """Part of the training (a policy, a stage; empty where it has none) → its curves.

        Raises `UserError` without the package tensorboard.
        """
        with self._lock:
            self._folders = {
                path: self._folders.get(path) or _EventFolder(path)
                for path in _event_folders(self._training)
            }
            return {
                "" if path.name == CURVES else path.name: folder.read()
                for path, folder in self._folders.items()
            }


class _EventFolder:
    """Scalars of one folder of event files. A file whose end is missing or damaged gives the data
    before it, and the rest once that is complete; points after a checkpoint that the training
    returned to are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loaders: dict[Path, Any] = {}
        self._series: dict[str, dict[int, float]] = {}
        self._points = 0

    def read(self) -> Series:
        """Open the folder. Raises `UserError` without the package tensorboard."""
        try:
            from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
            from tensorboard.compat.proto import event_pb2
        except ImportError as error:
            raise UserError(
                "the curves can't be read: the package tensorboard is not installed",
                hint=install_hint("train"),
            ) from error
        records: Any = event_pb2  # made by protobuf, so that types know nothing of it
        files = _event_files(self._path)
        if not self._loaders.keys() <= set(files):  # the training was started again
            self._loaders, self._series, self._points = {}, {}, 0
        for path in files:
            if path not in self._loaders:
                self._loaders[path] = RawEventFileLoader(str(path))
            for body in self._loaders[path].Load():
                self._take(records, records.Event.FromString(body))
        return {name: sorted(values.items()) for name, values in self._series.items()}

    def _take(self, records: Any, event: Any) -> None:
        log = event.session_log
        if event.HasField("session_log") and log.status == records.SessionLog.START:
            for values in self._series.values():
                for step in [step for step in values if step >= event.step]:
                    del values[step]
        for value in event.summary.value:
            if value.HasField("simple_value") and self._points < MAX_POINTS:
                self._series.setdefault(value.tag, {})[event.step] = value.simple_value
                self._points += 1


def smooth(values: Sequence[tuple[int, float]], weight: float) -> list[Point]:
    """The exponential moving average, corrected for its start: after n values the average divided
    by 1 - weight^n. Each point reaches from the average to the value itself. `weight` is in
    [0, 1); 0 leaves the values as they are."""
    points: list[Point] = []
    average, rest = 0.0, 1.0
    for step, value in values:
        if value != value or value in (float("inf"), float("-inf")):
            continue
        average = weight * average + (1 - weight) * value
        rest *= weight
        mean = average / (1 - rest)
        points.append(Point(float(step), mean, min(mean, value), max(mean, value)))
    return points


def rounds_of(training: Path) -> list[int]:
    """Return the numbers of the rounds whose groups were sealed, in order."""
    try:
        names = os.listdir(training / "rounds")
    except OSError:
        return []
    numbers = sorted(int(name) for name in names if name.isdecimal() and len(name) < 9)
    return [
        number
        for number in numbers[-MAX_ROUNDS:]
        if (training / "rounds" / f"{number:04d}" / "groups.json").is_file()
    ]


def groups_of(training: Path, number: int) -> list[Group]:
    """Return the groups of a round. Raises `UserError` for a file that can't be read."""
    path = training / "rounds" / f"{number:04d}" / "groups.json"
    try:
        record = read_object(path)
        return [_group(group) for group in record["groups"][:MAX_GROUPS]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} can't be read: {type(error).__name__}: {error}"[:400]) from error


def _group(record: dict[str, Any]) -> Group:
    members: list[Member] = []
    for origin, reward in zip(record["origins"], record["rewards"], strict=True):
        parts = _ORIGIN.fullmatch(str(origin))
        if parts is None:
            raise ValueError(f"{str(origin)[:80]!r} does not name a candidate of a run")
        members.append(
            Member(
                parts["run"],
                int(parts["turn"]),
                int(parts["branch"]),
                parts["agent"],
                int(parts["number"]),
                float(reward),
            )
        )
    return Group(
        key=str(record["key"]),
        policy=str(record["policy"]),
        version=int(record["version"]),
        fate=str(record["fate"]),
        members=members,
    )


def _event_folders(training: Path) -> list[Path]:
    """Folders of the events of a training's parts, or of the whole."""
    whole = training / CURVES
    try:
        parts = sorted(Path(entry.path) for entry in os.scandir(whole) if entry.is_dir())
    except OSError:
        return []
    return ([whole] if _event_files(whole) else []) + parts


def _event_files(folder: Path) -> list[Path]:
    """Event files in the order in which they were begun, which is that of their names."""
    try:
        names = sorted(name for name in os.listdir(folder) if ".tfevents." in name)
    except OSError:
        return []
    return [folder / name for name in names]

"""The results folder: its benchmarks and trainings, and their reports.

Programs of higher layers write them; this module reads their files as plain JSON. An unreadable
file becomes an entry with the reason: one damaged folder must not hide the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

MAX_FOLDERS = 5_000
"""Maximum number of folders that one scan reads."""
MAX_DEPTH = 5
MAX_FILE_BYTES = 64_000_000
MANIFEST, REPORT, PAGE = "manifest.json", "report.json", "report.html"
CURVES = "curves"
_SKIPPED_FOLDERS = {"problems", "checkpoints", "rounds", "published", "learned-tokens", "data"}
"""Subfolders of benchmarks and trainings that contain no other results."""
_PRIMARY = "numeric"
"""Deciding checker of reports that do not name one."""


@dataclass(frozen=True)
class ResultFolders:
    """Folders below the results folder, by their relative paths."""

    benchmarks: Sequence[str]
    trainings: Sequence[str]
    truncated: bool
    """Whether there are more folders than one scan reads."""


@dataclass(frozen=True)
class ArmResult:
    """One arm of a benchmark."""

    name: str
    runs: int
    right: int
    accuracy: float
    low: float
    high: float
    """Limits of the 95 % interval."""
    tokens: float | None
    """Tokens per question."""
    micro_dollars: float | None
    """Millionths of a US dollar per question; None if no call has a price."""
    has_unpriced: bool = False
    """Whether some calls have no price, so that the real cost is higher."""


@dataclass(frozen=True)
class BenchmarkResult:
    """The report of a folder; without a report, its request."""

    folder: str
    name: str
    """Name of the benchmark."""
    split: str
    created: float
    """Time of the benchmark in Unix seconds."""
    questions: int
    complete: bool
    checker: str
    arms: Sequence[ArmResult]
    models: Mapping[str, str]
    """Model by pool."""
    has_page: bool
    problem: str = ""
    """Reason why one of the folder's files can't be read."""

    @property
    def course(self) -> tuple[str, str]:
        """Key shared by benchmarks that form one series over time."""
        return self.name, self.split


def scan(root: Path) -> ResultFolders:
    """Find benchmarks and trainings. A missing folder contains none."""
    benchmarks: list[str] = []
    trainings: list[str] = []
    waiting, looked = [(root, 0)], 0
    while waiting and looked < MAX_FOLDERS:
        folder, depth = waiting.pop(0)
        looked += 1
        try:
            with os.scandir(folder) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        names = {entry.name for entry in children}
        path = str(folder.relative_to(root))
        if MANIFEST in names:
            benchmarks.append(path)
            continue
        # Links are not followed: they may form a cycle or lead out of the folder.
        folders = [entry for entry in children if entry.is_dir(follow_symlinks=False)]
        if any(entry.name == CURVES for entry in folders):
            trainings.append(path)
        if depth < MAX_DEPTH:
            waiting += [
                (Path(entry.path), depth + 1)
                for entry in folders
                if entry.name != CURVES
                and entry.name not in _SKIPPED_FOLDERS
                and not entry.name.startswith(".")
            ]
    return ResultFolders(benchmarks, trainings, bool(waiting))


class BenchmarkReader:
    """Reads reports, and caches them until their files change."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[object, BenchmarkResult]] = {}

    def read(self, folders: Sequence[str]) -> list[BenchmarkResult]:
        """Return the results of these folders, newest first."""
        results: dict[str, tuple[object, BenchmarkResult]] = {}
        for folder in folders:
            path = self._root / folder
            stamp = [_stamp(path / name) for name in (MANIFEST, REPORT, PAGE)]
            before = self._known.get(folder)
            if before is not None and before[0] == stamp:
                results[folder] = before
            else:
                results[folder] = (stamp, _read(path, folder))
        self._known = results
        return sorted(
            (result for _, result in results.values()),
            key=lambda result: (result.created, result.folder),
            reverse=True,
        )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _read(path: Path, folder: str) -> BenchmarkResult:
    try:
        manifest = read_object(path / MANIFEST)
        report = read_object(path / REPORT) if (path / REPORT).exists() else None
        return _result(folder, manifest, report, (path / PAGE).is_file())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        return BenchmarkResult(folder, "", "", 0.0, 0, False, "", (), {}, False, reason)


def _result(
    folder: str, manifest: dict[str, Any], report: dict[str, Any] | None, has_page: bool
) -> BenchmarkResult:
    results: dict[str, Any] = (report or {}).get("results", {})
    arms: dict[str, Any] = results.get("arms", {})
    checker = _checker(results, arms)
    return BenchmarkResult(
        folder=folder,
        name=str(manifest["benchmark"]),
        split=str(manifest["split"]),
        created=float(manifest["created"]),
        questions=len(manifest["items"]),
        complete=bool(results.get("complete", False)),
        checker=checker,
        arms=[_arm(str(name), arm, checker) for name, arm in arms.items() if arm["n"]],
        models={
            str(pool): str(facts["model"]) for pool, facts in manifest.get("pools", {}).items()
        },
        has_page=has_page,
    )


def _checker(results: Mapping[str, Any], arms: Mapping[str, Any]) -> str:
    """Return the checker that decides which answers are right."""
    if checkers := results.get("checkers"):
        return str(checkers[0])
    names = sorted({str(name) for arm in arms.values() for name in arm["accuracy"]})
    return _PRIMARY if _PRIMARY in names or not names else names[0]


def _arm(name: str, arm: dict[str, Any], checker: str) -> ArmResult:
    score = arm["accuracy"][checker]
    tokens, micro = arm.get("tokens_per_question"), arm.get("micro_dollars_per_question")
    unpriced = arm.get("unpriced")
    return ArmResult(
        name=name,
        runs=int(arm["n"]),
        right=int(score["right"]),
        accuracy=float(score["estimate"]),
        low=float(score["low"]),
        high=float(score["high"]),
        tokens=None if tokens is None else float(tokens),
        # In a report without a list of unpriced pools, no dollars mean that no pool had a price.
        micro_dollars=None if micro is None or not (micro or unpriced == []) else float(micro),
        has_unpriced=bool(unpriced),
    )


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file with an object. Raises OSError, and ValueError for other content."""
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise ValueError(f"{path.name} has {size:,} bytes; the limit is {MAX_FILE_BYTES:,}")
    value: object = orjson.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not contain a JSON object")  # noqa: TRY004 - of its content
    return cast(dict[str, Any], value)

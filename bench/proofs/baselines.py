"""The recorded lines of the proofs: one file per proof, one line per `--record`.

In a checkout they are in `bench/baselines/` and are committed; an installed package keeps them in
the state directory.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline.agents.records import Record
from loopline.bench.append_log import AppendLog, corrupt_line_error, read_log
from loopline.bench.errors import OutputError
from loopline.build import build, build_of_checkout

_PACKAGES = ("loopline", "torch", "transformers", "llama-cpp-python", "trl", "faststream", "redis")
"""Packages whose versions are recorded if installed."""


class Machine(Record):
    """The machine on which a line was measured."""

    cpu: str
    cores: int
    memory_gb: int
    gpu: str = ""

    def __str__(self) -> str:
        gpu = f", {self.gpu}" if self.gpu else ""
        return f"{self.cpu}, {self.cores} cores, {self.memory_gb} GB{gpu}"


class RecordedValue(Record):
    """A measurement in the form of a recorded line."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    bar: float | None = None
    better: str | None = None


class Baseline(Record):
    """One recorded line."""

    proof: str
    date: datetime
    commit: str
    """Commit of the program; empty if neither git nor the wheel states it."""
    modified: bool
    """Whether the working tree differed from the commit."""
    machine: Machine
    load: float
    """Number of processes that were running before the proof started (one-minute load average); 0
    on a quiet machine."""
    versions: dict[str, str]
    passed: bool
    complete: bool
    seconds: float
    options: dict[str, Any]
    measurements: dict[str, RecordedValue]
    violations: dict[str, int]
    facts: dict[str, Any]


def folder() -> Path:
    """Folder of the recorded lines."""
    root = Path(__file__).resolve().parents[2]
    if build_of_checkout(root) is not None:
        return root / "bench" / "baselines"
    from loopline.runtime.config.state import StateDirectory

    return StateDirectory.from_environment().path / "baselines"


def require_folder() -> None:
    """Check that a line can be written. Raises `OutputError` otherwise."""
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--record: {place} can't be created: {error.strerror}") from error
    if not os.access(place, os.W_OK):
        raise OutputError(f"--record: {place} can't be written to")


def append(proof: str, line: Mapping[str, Any], *, load: float) -> Path:
    """Add a line with date, commit and machine; return its file. Raises `OutputError`."""
    path = folder() / f"{proof}.jsonl"
    current = build()
    baseline = Baseline.model_validate(
        {
            **line,
            "date": datetime.now(UTC).replace(microsecond=0),
            "commit": current.commit if current else "",
            "modified": current.modified if current else False,
            "machine": machine(),
            "load": round(load, 2),
            "versions": versions(),
        }
    )
    with AppendLog(path, resume="the same command") as log:
        log.append(baseline.model_dump(mode="json", exclude_defaults=True))
        log.sync()
    return path


def read(proof: str) -> list[Baseline]:
    """Read all lines, oldest first. Raises `OutputError` that names a damaged line."""
    path = folder() / f"{proof}.jsonl"
    lines: list[Baseline] = []
    if not path.exists():
        return lines
    for number, record in read_log(path):
        try:
            lines.append(Baseline.model_validate(record))
        except ValidationError as error:
            raise corrupt_line_error(path, number, str(error.errors()[0]["msg"])) from error
    return lines


def recorded_proofs() -> list[str]:
    """Return the proofs that have lines."""
    return sorted(path.stem for path in folder().glob("*.jsonl"))


def machine() -> Machine:
    """Return the facts of this machine."""
    import psutil

    return Machine(
        cpu=_cpu(), cores=os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 2**30), gpu=_gpu(),
    )  # fmt: skip


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect the figures, by name."""
    import platform

    installed = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    import platform

    return next(names, platform.machine())


def _gpu() -> str:
    command = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ", ".join(done.stdout.strip().splitlines())

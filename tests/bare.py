"""The programs and data that a bare machine lacks, and the tests that see them where they are
installed.

A test sees no Redis server, no sandbox and no data set of this machine, even if they are installed:
the servers that it starts are the package's Valkey. A test that is marked `system`, or is skipped
where such a program is missing, sees everything. All other tests therefore behave the same on every
machine, and the second run of `.ci/run`, which hides these programs, repeats only the marked tests.

`python -m tests.bare FOLDER` prints a PATH without these programs; its links are in FOLDER.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import pytest

PROGRAMS = ("redis-*", "valkey-*", "bwrap", "docker-compose", "openssl", "apt-get")
DATA = "LOOPLINE_DATA"
FULL = {name: os.environ.get(name) for name in ("PATH", DATA)}
"""Values of the machine when this process started."""
REASONS = {
    r"\bredis server|TLS server": "redis-server",
    r"\bbwrap\b": "bwrap",
    r"\bdocker-compose\b": "docker-compose",
    r"\bopenssl\b": "openssl",
    rf"\b{DATA}\b": DATA,
}
"""What the reason of a skipped test mentions, and the missing program or data that it means."""
_BARE = "TESTS_BARE_PATH"


def bare_path(folder: Path, path: str) -> str:
    """Return `path` with each folder that contains some of PROGRAMS replaced by a folder, made
    within `folder`, of links to its other programs."""
    return os.pathsep.join(
        _links(folder, source) if any(map(_is_hidden, os.listdir(source))) else source
        for source in path.split(os.pathsep)
        if os.path.isdir(source)
    )


def _is_hidden(program: str) -> bool:
    return any(fnmatch(program, pattern) for pattern in PROGRAMS)


def _links(folder: Path, source: str) -> str:
    links = tempfile.mkdtemp(dir=folder)
    os.chmod(links, 0o755)  # also for processes of other users
    for entry in os.scandir(source):
        if entry.is_file() and os.access(entry.path, os.X_OK) and not _is_hidden(entry.name):
            os.symlink(os.path.abspath(entry.path), os.path.join(links, entry.name))
    return links


def make_bare_path(folder: Path) -> None:
    """Set the path once for all test processes: they inherit it from the process that started
    them."""
    os.environ[_BARE] = bare_path(folder, FULL["PATH"] or os.defpath)


def is_system(item: pytest.Item) -> bool:
    """Tell whether a test is marked, or is skipped where such a program is missing."""
    reasons = [str(mark.kwargs.get("reason")) for mark in item.iter_markers("skipif")]
    return item.get_closest_marker("system") is not None or any(
        re.search(pattern, reason) for pattern in REASONS for reason in reasons
    )


def hidden_by_us(reason: str) -> str:
    """Return the program or data that the reason calls missing although this machine has it, or
    ""."""
    for pattern, name in REASONS.items():
        here = FULL[DATA] if name == DATA else shutil.which(name, path=FULL["PATH"])
        if here and re.search(pattern, reason):
            return name
    return ""


@contextmanager
def shown(system: bool) -> Generator[None]:
    """Show these programs and data to this process and its children, or hide them."""
    before = {name: os.environ.get(name) for name in FULL}
    _set(FULL if system else {"PATH": os.environ[_BARE], DATA: None})
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


if __name__ == "__main__":
    print(bare_path(Path(sys.argv[1]), os.environ["PATH"]))

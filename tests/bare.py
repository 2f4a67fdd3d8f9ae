"""What a bare machine lacks, and which tests see it where it is installed.

A test sees no Redis server, no sandbox and no data set of this machine, whether they are there or
not: what it starts runs on the Valkey of the package. A test that is marked `system`, or is skipped
where such a thing is missing, sees all that is there. So the others do the same on every machine,
and `.ci/run`, whose second run hides these things, repeats only those that are marked.

    python -m tests.bare FOLDER    fills FOLDER with links to all other programs on PATH
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import pytest

PROGRAMS = ("redis-*", "valkey-*", "bwrap", "docker-compose", "openssl", "apt-get")
DATA = "LOOPLINE_DATA"
FULL = {name: os.environ.get(name) for name in ("PATH", DATA)}
"""Of the machine, when this process began."""
REASONS = {
    r"\bredis server|TLS server": "redis-server",
    r"\bbwrap\b": "bwrap",
    r"\bdocker-compose\b": "docker-compose",
    r"\bopenssl\b": "openssl",
    rf"\b{DATA}\b": DATA,
}
"""What the reason of a skipped test names, and what it is skipped for want of."""
_BARE = "TESTS_BARE_PATH"


def link_programs(folder: Path, path: str) -> None:
    """Fill a folder with links to the programs in the folders of `path`, except PROGRAMS."""
    for source in filter(os.path.isdir, path.split(os.pathsep)):
        for entry in os.scandir(source):
            link = folder / entry.name
            hidden = any(fnmatch(entry.name, pattern) for pattern in PROGRAMS)
            program = entry.is_file() and os.access(entry.path, os.X_OK)
            if program and not hidden and not os.path.lexists(link):
                link.symlink_to(os.path.abspath(entry.path))


def make_bare_path(folder: Path) -> None:
    """Once for all test processes, which take it over from the one that began them."""
    link_programs(folder, FULL["PATH"] or os.defpath)
    os.environ[_BARE] = str(folder)


def is_system(item: pytest.Item) -> bool:
    """Whether a test is marked, or is skipped where such a thing is missing."""
    reasons = [str(mark.kwargs.get("reason")) for mark in item.iter_markers("skipif")]
    return item.get_closest_marker("system") is not None or any(
        re.search(pattern, reason) for pattern in REASONS for reason in reasons
    )


def hidden_by_us(reason: str) -> str:
    """What a test was skipped for want of though this machine has it; empty if there is none."""
    for pattern, name in REASONS.items():
        here = FULL[DATA] if name == DATA else shutil.which(name, path=FULL["PATH"])
        if here and re.search(pattern, reason):
            return name
    return ""


@contextmanager
def shown(system: bool) -> Generator[None]:
    """This process, and what it starts meanwhile, see these things or not."""
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
    link_programs(Path(sys.argv[1]), os.environ["PATH"])

"""What a bare machine lacks, and which tests see it where it is installed.

A test sees no Redis server, no sandbox and no data set of this machine, whether they are there or
not: what it starts runs on the Valkey of the package. A test that is marked `system`, or is skipped
where such a thing is missing, sees all that is there. So the others do the same on every machine,
and `.ci/run`, whose second run hides these things, repeats only those that are marked.

    python -m tests.bare FOLDER    prints a PATH without them, whose links lie in FOLDER
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


def bare_path(folder: Path, path: str) -> str:
    """`path`, where a folder that holds some of PROGRAMS is replaced by one of links to all its
    other programs, made within `folder`."""
    return os.pathsep.join(
        _links(folder, source) if any(map(_is_hidden, os.listdir(source))) else source
        for source in path.split(os.pathsep)
        if os.path.isdir(source)
    )


def _is_hidden(program: str) -> bool:
    return any(fnmatch(program, pattern) for pattern in PROGRAMS)


def _links(folder: Path, source: str) -> str:
    links = tempfile.mkdtemp(dir=folder)
    os.chmod(links, 0o755)  # for processes of other users, too
    for entry in os.scandir(source):
        if entry.is_file() and os.access(entry.path, os.X_OK) and not _is_hidden(entry.name):
            os.symlink(os.path.abspath(entry.path), os.path.join(links, entry.name))
    return links


def make_bare_path(folder: Path) -> None:
    """Once for all test processes, which take it over from the one that began them."""
    os.environ[_BARE] = bare_path(folder, FULL["PATH"] or os.defpath)


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
    print(bare_path(Path(sys.argv[1]), os.environ["PATH"]))

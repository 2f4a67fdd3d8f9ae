"""Sandboxes for tests, where bubblewrap works, under both kinds of unprivileged user if
available."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopline.workers.sandbox import SandboxSettings, SandboxUnavailable, bubblewrap


def _refusal() -> str:
    try:
        bubblewrap.Bubblewrap(0).check()
    except SandboxUnavailable as error:
        return str(error)
    return ""


REFUSAL = _refusal()
needs_bubblewrap = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "needs bwrap")


@pytest.fixture
def settings() -> SandboxSettings:
    """Few interpreters are kept ready, so that a test starts few."""
    return SandboxSettings(parallel=2, ready=1)


@contextmanager
def folder_in_sight() -> Generator[Path]:
    """A folder that programs can read: it is next to the interpreter's own files."""
    prefix = bubblewrap.interpreter().prefix
    if not os.access(prefix, os.W_OK):
        pytest.skip(f"only who may write to {prefix} can have a folder there")
    with tempfile.TemporaryDirectory(prefix="loopline-test-", dir=prefix) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(params=["user namespace", "spare user"])
def identity(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The identity of a program: nobody in a namespace, as under a user, or a separate id, as under
    root."""
    if request.param == "user namespace":
        monkeypatch.setattr(bubblewrap, "_spare_users", lambda: None)
    elif os.geteuid() != 0:
        pytest.skip("only root can give a program another user's id")
    return str(request.param)

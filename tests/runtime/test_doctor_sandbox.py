"""The doctor's findings about the sandbox for generated programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.runtime.config.settings import load
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.observe.check_results import Finding
from loopline.runtime.observe.doctor import examine
from tests.workers.sandbox.conftest import needs_bubblewrap


def sandbox_finding(folder: Path) -> Finding:
    """The finding in a state directory of the test's own."""
    findings = examine(load("scripted", environ={}), StateDirectory(folder / "state"))
    (finding,) = (candidate for candidate in findings if candidate.subject == "sandbox")
    return finding


@needs_bubblewrap
def test_a_working_bubblewrap_is_reported_as_ok(tmp_path: Path) -> None:
    """The doctor starts a program in it."""
    assert sandbox_finding(tmp_path).level == "ok"


def test_a_missing_bubblewrap_is_a_warning_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a warning: most workflows generate no programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = sandbox_finding(tmp_path)
    assert (finding.level, "no `bwrap` on PATH" in finding.says) == ("warn", True)
    assert "apt-get install bubblewrap" in finding.do

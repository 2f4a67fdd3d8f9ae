"""Errors of the user's surroundings are one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.runtime.errors import EXIT_FAILED
from loopline.runtime.program import explain_error


def test_a_current_folder_that_was_deleted_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    message, code = explain_error(caught.value)
    assert "current folder no longer exists" in message
    assert code == EXIT_FAILED

"""Files and folders exist completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopline.workers.atomic_files import atomic_file, atomic_folder, write_atomic

DEAD = 99_999_999
"""A process id above the largest one of Linux."""


def test_a_file_is_replaced_without_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "record"
    write_atomic(path, "old")
    write_atomic(path, "née")
    assert path.read_bytes() == "née".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_readable_only_by_its_owner_even_while_written(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "secret", private=True) as partial:
        assert partial.stat().st_mode & 0o777 == 0o600
        partial.write_text("s")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_an_error_keeps_the_old_file_and_nothing_of_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "record"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError), atomic_file(path) as partial:
        partial.write_text("half \udc80", encoding="utf-8")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_nonempty_folder_is_replaced_only_on_request(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    with atomic_folder(folder) as partial:
        (partial / "weights").write_text("first")
        assert not folder.exists()
    with pytest.raises(OSError, match="not empty"), atomic_folder(folder) as partial:
        (partial / "weights").write_text("second")
    assert (folder / "weights").read_text() == "first"
    with atomic_folder(folder, replace=True) as partial:
        (partial / "other").write_text("third")
    assert [path.name for path in folder.iterdir()] == ["other"]
    assert list(tmp_path.iterdir()) == [folder]


def test_leftovers_of_killed_processes_are_removed_and_files_of_live_ones_kept(
    tmp_path: Path,
) -> None:
    names = {pid: f".model[1].{pid}.part" for pid in (DEAD, os.getpid(), os.getppid())}
    for name in (*names.values(), f".other.{DEAD}.part"):
        (tmp_path / name).mkdir()
    with atomic_folder(tmp_path / "model[1]"):
        pass
    file_names = {path.name for path in tmp_path.iterdir()}
    assert file_names == {"model[1]", names[os.getppid()], f".other.{DEAD}.part"}

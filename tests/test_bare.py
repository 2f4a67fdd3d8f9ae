"""Which tests see what a bare machine lacks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from loopline.runtime.redis import binary
from tests import bare

PROGRAMS = ("redis-server", "valkey-server", "bwrap", "docker-compose", "openssl", "apt-get")


def test_a_test_sees_neither_programs_nor_data_of_the_machine() -> None:
    assert [name for name in PROGRAMS if shutil.which(name)] == []
    assert bare.DATA not in os.environ
    assert binary.choose().path == binary.packaged_server()
    assert shutil.which("sh")


@pytest.mark.system
def test_a_marked_test_sees_the_whole_machine() -> None:
    assert os.environ["PATH"] == bare.FULL["PATH"]
    assert os.environ.get(bare.DATA) == bare.FULL[bare.DATA]


@pytest.mark.skipif(False, reason="LOOPLINE_DATA is not set")
def test_a_test_that_is_skipped_without_data_is_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("system")
    assert os.environ["PATH"] == bare.FULL["PATH"]


def test_a_skip_reason_that_names_an_installed_program_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bare.FULL, "PATH", str(tmp_path))
    reason = "Skipped: no `bwrap` on PATH"
    assert bare.hidden_by_us(reason) == ""
    (tmp_path / "bwrap").write_text("#!/bin/sh\n")
    (tmp_path / "bwrap").chmod(0o755)
    assert bare.hidden_by_us(reason) == "bwrap"
    assert bare.hidden_by_us("Skipped: needs a CUDA GPU") == ""


def test_a_folder_with_hidden_programs_is_replaced_by_links_to_its_other_programs(
    tmp_path: Path,
) -> None:
    programs = {"a": ("sh", "redis-cli", "apt-get", "notes"), "b": ("sh", "make")}
    for folder, names in programs.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text(folder)
            (tmp_path / folder / name).chmod(0o644 if name == "notes" else 0o755)
    (tmp_path / "links").mkdir()
    paths = [str(tmp_path / name) for name in ("a", "missing", "b")]
    links, unchanged = bare.bare_path(tmp_path / "links", os.pathsep.join(paths)).split(os.pathsep)
    assert {link.name: link.read_text() for link in Path(links).iterdir()} == {"sh": "a"}
    assert unchanged == paths[2]

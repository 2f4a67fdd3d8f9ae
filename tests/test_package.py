"""One import package: in a checkout, in a wheel, and alongside packages named like its parts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

import loopline

ROOT = Path(__file__).parents[1]
PARTS = ("agents", "bench", "bus", "runtime", "trainers", "workers")
PEER = "openai-agents==0.24.0"
"""A package whose import name is `agents`."""
LIMIT = 240


def run(command: Sequence[str | Path], where: Path, **environ: str) -> str:
    """Return the output of a program that must succeed."""
    base_environ = {
        name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")
    }
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    process = subprocess.run(
        command,
        cwd=where,
        env={**base_environ, **pip, **environ},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel of this tree, and the peer's where the package index is reachable."""
    folder = tmp_path_factory.mktemp("wheels")
    tree = folder / "tree"
    shutil.copytree(
        ROOT,
        tree,
        symlinks=True,
        ignore=shutil.ignore_patterns(".venv", "build", "*.egg-info", "__pycache__", "results"),
    )
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, "."], tree)
    return folder


@pytest.fixture(scope="module")
def peer(wheels: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    process = subprocess.run(
        [*pip, "download", "--no-deps", "--dest", wheels, PEER], capture_output=True, timeout=LIMIT
    )
    if process.returncode != 0:
        pytest.skip(f"{PEER} can't be downloaded here")
    (wheel,) = wheels.glob("openai_agents*.whl")
    return wheel


def environment(folder: Path, *packages: Path) -> Path:
    """Create an environment with these wheels, installed one after the other, and the dependencies
    of this environment. Return its `bin`."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    for package in packages:
        python = folder / "bin" / "python"
        run([*pip, "--python", python, "install", "--no-deps", "--no-index", package], folder)
    # This path comes after the environment's own packages. No editable install leaks in: `.pth`
    # files only work directly in an environment's folder.
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture(scope="module", params=["loopline first", "loopline last"])
def installed(
    request: pytest.FixtureRequest,
    wheels: Path,
    peer: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    (own_wheel,) = wheels.glob("loopline*.whl")
    order = (own_wheel, peer) if request.param == "loopline first" else (peer, own_wheel)
    return environment(tmp_path_factory.mktemp("environment"), *order)


@pytest.fixture
def folder_of_the_user(tmp_path: Path) -> Path:
    """A folder that contains modules with the names of our packages."""
    for name in ("agents/__init__.py", "workers/__init__.py", "bus.py", "runtime.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('a file of the user was imported')")
    return tmp_path


@pytest.mark.parametrize("part", PARTS)
def test_a_part_cannot_be_imported_without_the_package_name(part: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", f"import {part}"], cwd=ROOT, capture_output=True, text=True
    )
    assert f"ImportError: import loopline.{part}: {part!r} is not its name" in process.stderr


def test_an_editable_install_exposes_only_the_package(tmp_path: Path) -> None:
    program = f"import importlib.util as u; print([p for p in {PARTS} if u.find_spec(p)])"
    assert run([sys.executable, "-c", program], tmp_path).strip() == "[]"


def test_a_checkout_runs_without_being_installed(tmp_path: Path) -> None:
    bare = environment(tmp_path / "environment")
    assert "Usage" in run([bare / "python", "-m", "loopline", "--help"], ROOT)


def test_a_wheel_contains_only_the_package_and_marks_it_as_typed(
    wheels: Path, tmp_path: Path
) -> None:
    (wheel,) = wheels.glob("loopline*.whl")
    shutil.unpack_archive(wheel, tmp_path, "zip")
    top = {path.name for path in tmp_path.iterdir() if not path.name.endswith(".dist-info")}
    assert top == {"loopline"}
    assert (tmp_path / "loopline" / "py.typed").is_file()
    assert {part for part in PARTS if (tmp_path / "loopline" / part / "__init__.py").is_file()} == {
        *PARTS
    }
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_a_wheel_contains_every_file_of_the_parts(wheels: Path, tmp_path: Path) -> None:
    """Packaging has to list texts, templates, scripts and models."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a checkout knows its files")
    (wheel,) = wheels.glob("loopline*.whl")
    shutil.unpack_archive(wheel, tmp_path, "zip")
    tracked = run(["git", "-C", ROOT, "ls-files", "--", *PARTS], tmp_path).splitlines()
    missing = [
        name
        for name in tracked
        # These are measurements of this repository's own machines.
        if not name.startswith("bench/baselines/") and not (tmp_path / "loopline" / name).is_file()
    ]
    assert missing == []


def test_programs_report_their_version_and_commit_and_whether_files_are_modified(
    tmp_path: Path,
) -> None:
    output = run([Path(sys.executable).with_name("loopline"), "--version"], tmp_path)
    if not (ROOT / ".git").exists():
        assert "(unknown build)" in output
        return
    commit = run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], tmp_path).strip()
    changed = run(["git", "-C", ROOT, "status", "--porcelain", "-uno"], tmp_path)
    assert output.endswith(f"(commit {commit}{', modified' if changed else ''})\n")
    for program in ("runtime", "bench", "train"):
        assert run([Path(sys.executable).with_name(program), "--version"], tmp_path) == output


CHANGED = """
import base64, hashlib, importlib.metadata as m
for name in ("loopline", "openai-agents"):
    for file in m.files(name):
        if file.hash:
            digest = hashlib.new(file.hash.mode, file.read_binary()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
                print(file)
import loopline.agents
"""


@pytest.mark.slow
def test_installing_alongside_openai_agents_overwrites_no_file_of_either(
    installed: Path, tmp_path: Path
) -> None:
    assert run([installed / "python", "-P", "-c", CHANGED], tmp_path) == ""


@pytest.mark.slow
def test_a_deployment_works_in_a_folder_with_modules_named_like_its_parts(
    installed: Path, folder_of_the_user: Path
) -> None:
    def loopline_command(*words: str) -> str:
        return run([installed / "loopline", *words], folder_of_the_user)

    loopline_command("up", "--detach", "--profile", "scripted", "--set", "gateway.port=0")
    try:
        assert loopline_command("ask", "What is 2 + 2?").strip()
    finally:
        loopline_command("down")


def test_the_package_docstring_describes_every_part() -> None:
    assert loopline.__doc__ is not None
    assert all(f"`{part}`" in loopline.__doc__ for part in PARTS)

"""The blocks of every page, run in order in an empty folder, as a reader would type them.

A page's `sh` blocks share one folder and one deployment, with a copy of `examples/` in it, as in a
checkout. If a block names no profile, models are scripted, except on the pages of `REAL`. The
endpoint at port 8000 is the scripted API. `pip install ./examples` installs into a separate folder.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands_by_copies import commands
from tests.docs.fences import ROOT, Block, blocks, documents

BLOCK_SECONDS = 300
REAL = ("docs/quickstart.md",)
"""Pages that run on the micro models, with commands that pip installed."""
ENDPOINT = "http://127.0.0.1:8000/v1"
GATEWAY = "127.0.0.1:8400"
"""A page that shows this address starts the gateway itself; the test uses a free port."""
LANGUAGES = ("sh", "python")


def runnable(page: str) -> list[Block]:
    return [
        block
        for block in blocks(page)
        if block.language in LANGUAGES
        and not block.needs
        and not block.text.startswith("--8<--")  # a file of `examples/`
    ]


@contextmanager
def endpoint() -> Generator[str]:
    """Start a scripted API and yield its address."""
    command = [sys.executable, "-m", "loopline.workers.scripted_api", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


class Reader:
    """A reader who types a page's blocks."""

    def __init__(self, folder: Path, page: str, url: str, commands: Path) -> None:
        shutil.copytree(ROOT / "examples", folder / "examples")
        self.folder = folder
        self.url = url
        names = ("HOME", "LANG", "TMPDIR", "LOOPLINE_DATA", "OMP_NUM_THREADS")
        packages = str(folder / "packages")
        self.environment = {
            **{name: os.environ[name] for name in names if name in os.environ},
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": packages,
            "PIP_TARGET": packages,
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        self.gateway = GATEWAY
        if GATEWAY in (ROOT / page).read_text():
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            self.gateway = f"127.0.0.1:{port}"
            self.environment["LOOPLINE_GATEWAY__PORT"] = f"{port}"
        else:
            self.environment["LOOPLINE_WORKERS__GATEWAY__COUNT"] = "0"
        if page not in REAL:
            self.environment["LOOPLINE_PROFILE"] = "scripted"

    def types(self, block: Block) -> None:
        text = block.text.replace(ENDPOINT, self.url).replace(GATEWAY, self.gateway)
        shell = ["bash", "-euo", "pipefail", "-c", text]
        command = [sys.executable, "-c", text] if block.language == "python" else shell
        done = self.run(command)
        assert done.returncode == 0, f"{block.place}:\n{text}\n{done.stdout}\n{done.stderr}"

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_SECONDS,
        )

    def leaves(self) -> None:
        """End the deployment that the page may have left running."""
        if (self.folder / ".loopline").exists():
            self.run(["runtime", "down"])


@pytest.fixture(scope="module")
def quick_commands() -> Iterator[Path]:
    with commands() as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("page", [page for page in documents() if runnable(page)])
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, quick_commands: Path) -> None:
    with endpoint() as url:
        installed = Path(sys.executable).parent
        reader = Reader(tmp_path, page, url, installed if page in REAL else quick_commands)
        try:
            for block in runnable(page):
                reader.types(block)
        finally:
            reader.leaves()


def test_a_block_that_is_not_run_states_what_it_needs() -> None:
    """The page gives the reason to readers of its source, and this test to developers."""
    reasons = [block.needs for page in documents() for block in blocks(page) if block.needs]
    assert reasons
    assert all(len(reason.split()) >= 2 for reason in reasons)

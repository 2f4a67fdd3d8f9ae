"""`make install`, with a Python that only records its arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAKE_ENVIRONMENT = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEFILES")
"""Variables of the `make` that runs this suite; the tested one must not inherit them."""

HAS_PIP = '#!/bin/sh\necho "inside $*" >> said\n'
NO_PIP = "#!/bin/sh\nexit 1\n"
PYTHON = f"""#!/bin/sh
echo "outside $*" >> said
case "$*" in "-m venv --clear .venv")
  rm -rf .venv && mkdir -p .venv/bin && printf '%s' '{HAS_PIP}' > .venv/bin/python &&
  chmod +x .venv/bin/python
esac
"""


class Checkout:
    """A folder with the files that `make install` reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder)
        self.program("python", PYTHON)

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def install(self) -> list[str]:
        """Run `make install`, and return the arguments of the Pythons inside and outside of
        .venv."""
        (self.folder / "said").unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if k not in MAKE_ENVIRONMENT}
        process = subprocess.run(
            ["make", "install", f"PYTHON={self.folder / 'python'}"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert process.returncode == 0, process.stderr
        log_path = self.folder / "said"
        return log_path.read_text().splitlines() if log_path.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    if shutil.which("make") is None:
        pytest.skip("no make on this machine")
    return Checkout(tmp_path)


def installed(lines: list[str]) -> bool:
    return any(line.startswith("inside -m pip install ") for line in lines)


def made_anew(lines: list[str]) -> bool:
    return "outside -m venv --clear .venv" in lines


@pytest.mark.parametrize("remnant", ["nothing", "an empty folder", "a python without pip"])
def test_install_recreates_a_missing_or_incomplete_environment(
    checkout: Checkout, remnant: str
) -> None:
    if remnant == "an empty folder":
        (checkout.folder / ".venv").mkdir()
    if remnant == "a python without pip":
        checkout.program(".venv/bin/python", NO_PIP)
    lines = checkout.install()
    assert made_anew(lines)
    assert installed(lines)


def test_install_keeps_and_updates_an_environment_that_has_pip(checkout: Checkout) -> None:
    checkout.program(".venv/bin/python", HAS_PIP)
    lines = checkout.install()
    assert not made_anew(lines)
    assert installed(lines)


def test_an_installed_tree_is_not_installed_again(checkout: Checkout) -> None:
    checkout.install()
    assert checkout.install() == []

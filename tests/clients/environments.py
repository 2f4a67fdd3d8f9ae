"""An environment for each client, created once and kept outside the repository.

`python -m tests.clients.environments` creates the missing ones. The folder's name contains a hash
of the versions, so that another version has another folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).with_name("environments.toml")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loopline" / "clients"


@dataclass(frozen=True)
class Environment:
    """A client's own packages."""

    name: str
    pip: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        what = json.dumps([self.pip, self.npm, sys.version_info[:2]])
        return CACHE / f"{self.name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"

    @property
    def program(self) -> str:
        """The executable that runs this client's programs."""
        if self.npm:
            return "node"
        return str(self.folder / "bin" / "python") if self.pip else sys.executable

    @property
    def missing(self) -> str | None:
        """Why the client can't run; None if it can."""
        tool = "node" if self.npm else self.name
        if not self.pip and shutil.which(tool) is None:
            return f"no {tool} on this machine"
        if (self.pip or self.npm) and not (self.folder / "complete").exists():
            return f"{self.name} is not installed: make clients"
        return None

    def make(self) -> None:
        """Raises `subprocess.CalledProcessError`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.npm:
            words = ["npm", "install", "--no-audit", "--no-fund", *self.npm]
            subprocess.run(words, cwd=self.folder, check=True)
        else:
            subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)
            words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.pip]
            subprocess.run([self.program, *words], check=True)
        (self.folder / "complete").touch()


def environments() -> dict[str, Environment]:
    """The pinned environments by name."""
    tables = tomllib.loads(PINS.read_text())
    return {
        name: Environment(name, tuple(table.get("pip", ())), tuple(table.get("npm", ())))
        for name, table in tables.items()
    }


def main() -> int:
    """Create the missing environments; returns how many failed."""
    failures = 0
    for environment in environments().values():
        reason = environment.missing
        if reason is None or "not installed" not in reason:
            print(f"{environment.name}: {reason or environment.folder}")
            continue
        try:
            environment.make()
            print(f"{environment.name}: made {environment.folder}", flush=True)
        except (OSError, subprocess.CalledProcessError) as error:
            failures += 1
            print(f"{environment.name}: {error}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())

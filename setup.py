"""Records in a wheel, and in a source archive, which commit it was built from; all else is said in
pyproject.toml."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from loopline.build import RECORDED, build_of_checkout  # noqa: E402


def record(package: Path) -> None:
    """Nothing where there is no checkout: what an unpacked archive recorded is copied with it."""
    build = build_of_checkout(ROOT)
    if build is not None:
        package.mkdir(parents=True, exist_ok=True)
        (package / RECORDED).write_text(json.dumps(asdict(build)))


class BuildPy(build_py):
    """Into the wheel."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            record(Path(self.build_lib) / "loopline")


class Sdist(sdist):
    """Into the archive."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        record(Path(base_dir) / "loopline")


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})

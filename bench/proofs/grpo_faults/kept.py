"""Copies of the adapters that a loop publishes: the loop itself deletes adapters that no deployment
uses any more."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from loopline.bench.errors import BenchError
from loopline.workers.atomic_files import atomic_folder


class KeptAdapters:
    """One folder for each round: `FOLDER/0003/<policy>/`; 0000 is the beginning."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, output: Path) -> None:
        """Copy what the loop in `output` has published since."""
        for source in sorted(output.glob("published/*/[0-9]*")):
            target = self._folder / source.name
            if target.exists():
                continue
            # It was replaced or deleted during the copy: the next call copies it, or `of` reports
            # that there is no copy.
            with (
                contextlib.suppress(FileNotFoundError, shutil.Error),
                atomic_folder(target) as partial,
            ):
                shutil.copytree(source, partial, dirs_exist_ok=True)

    def of(self, number: int) -> Path:
        """Return the folder of a round's policies. Raises `BenchError` if there is no copy of
        it."""
        folder = self._folder / f"{number:04d}"
        if not folder.exists():
            raise BenchError(
                f"{folder}: what round {number} published was gone before it was copied; remove "
                f"{self._folder.parent}, then run the same command again"
            )
        return folder

"""Location of a published data set: the path given by `--data`, else by LOOPLINE_DATA."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.errors import DataError
from loopline.trainers.data.json_files import SUFFIXES


def data_root(name: str, data: Path | None, source: str) -> Path:
    """Return the folder to search. Raises DataError that states where to get the data set
    `name`."""
    where = (
        f"Get it from {source} and point to it: --data FOLDER, or {VARIABLE}=FOLDER in the "
        "environment."
    )
    if data is None:
        named = os.environ.get(VARIABLE, "")
        if not named:
            raise DataError(f"{name} is not part of this project. {where}")
        root, origin = Path(named), f"{VARIABLE}={named}"
    else:
        root, origin = data, f"--data {data}"
    if not root.is_dir():
        raise DataError(f"{origin}: there is no such folder. {where}")
    return root


def find(root: Path, folders: Sequence[str], file: str, source: str) -> Path:
    """Return a file in one of the folders below `root`, plain or compressed. Raises DataError."""
    paths = find_first(root, folders, (file,))
    if not paths:
        raise not_found_error(root, folders, (file,), source)
    return paths[0]


def find_first(root: Path, folders: Sequence[str], patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files, plain or compressed, that match the first of `patterns` (as in `Path.glob`)
    with any match in one of the folders below `root`, sorted; empty if none matches. Earlier
    folders take precedence over earlier patterns."""
    for folder in folders:
        for pattern in patterns:
            for suffix in SUFFIXES:
                matches = (root / folder).glob(f"{pattern}{suffix}")
                if files := sorted(path for path in matches if path.is_file()):
                    return tuple(files)
    return ()


def not_found_error(
    root: Path, folders: Sequence[str], patterns: Sequence[str], source: str
) -> DataError:
    """Return the error for files that `find_first` did not find."""
    below = ", ".join(folder for folder in folders if folder)
    return DataError(
        f"{root}: no file {' or '.join(patterns)} (or .xz, .gz) was found in it, nor in {below} "
        f"below it; get it from {source}"
    )


def plain_or_compressed(folder: Path, file: str) -> Path | None:
    """Return the file with this name in the folder, plain or compressed; None if neither exists."""
    candidates = (folder / f"{file}{suffix}" for suffix in SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)

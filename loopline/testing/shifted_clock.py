"""Run processes with a wrong wall clock, which may jump during the run, via a preloaded library."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from loopline.runtime.errors import UserError

SOURCE = Path(__file__).with_suffix(".c")


class ShiftedClock:
    """One wrong clock for the processes that are started within `lying`."""

    def __init__(self, library: Path, file: Path) -> None:
        self._library = library
        self._file = file
        self.jump(0)

    def jump(self, seconds: float) -> None:
        """Shift the clock by this many seconds from now on."""
        with self._file.open("r+b" if self._file.exists() else "w+b") as file:
            file.write(struct.pack("=q", int(seconds * 1e9)))

    @contextmanager
    def lying(self) -> Generator[None]:
        before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "SHIFTED_CLOCK")}
        os.environ |= {"LD_PRELOAD": str(self._library), "SHIFTED_CLOCK": str(self._file)}
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def can_shift_clocks() -> bool:
    """Whether this machine can compile and preload a library."""
    return shutil.which("cc") is not None and sys.platform.startswith("linux")


def shifted_clock(folder: Path) -> ShiftedClock:
    """A clock that starts out right. Raises `UserError` without a library to preload."""
    compiler = shutil.which("cc")
    if compiler is None or not can_shift_clocks():
        raise UserError("no C compiler on this machine, or no Linux: its clocks can't be moved")
    library = folder / "shifted_clock.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True
    )
    return ShiftedClock(library, folder / "offset")

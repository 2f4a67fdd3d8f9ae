"""A program's standard input as a file, since many contest programs query its size, map it, or open
it again as `/dev/stdin`.

It is in memory and is created outside the sandbox: inside, in-memory files are refused because they
would bypass the memory limit. After it is written it is sealed, so that nothing can be added.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile

_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE", "F_SEAL_SEAL")


class InputFile:
    """An input file, empty until it is written, once."""

    def __init__(self) -> None:
        self._in_memory = hasattr(os, "memfd_create")
        if self._in_memory:
            self._descriptor = os.memfd_create("stdin", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        else:
            # Systems other than Linux have no sandbox, only `unsafe_exec`.
            self._descriptor, path = tempfile.mkstemp(prefix="loopline-stdin-")
            os.unlink(path)

    @property
    def descriptor(self) -> int:
        """File descriptor to pass to the interpreter."""
        return self._descriptor

    def write(self, content: bytes) -> None:
        """Write the content and seal the file. Every reader starts at the beginning."""
        written = 0
        while written < len(content):
            written += os.pwrite(self._descriptor, content[written:], written)
        if self._in_memory:
            seals = 0
            for name in _SEALS:
                seals |= getattr(fcntl, name)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, seals)

    def close(self) -> None:
        """Close the file in this process; the interpreter may continue reading."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

"""A program's standard input as a file, which many programs of contests ask for its size, map, or
open again by the name `/dev/stdin`.

It lies in memory and is made out here: inside, files in memory are refused, as they are a way round
the memory limit. Once written it is sealed, so that nothing can be put into it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile

_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE", "F_SEAL_SEAL")


class InputFile:
    """Empty until it is written, once."""

    def __init__(self) -> None:
        self._in_memory = hasattr(os, "memfd_create")
        if self._in_memory:
            self._descriptor = os.memfd_create("stdin", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        else:
            # Without Linux there is no sandbox either: `unsafe_exec` only.
            self._descriptor, path = tempfile.mkstemp(prefix="loopline-stdin-")
            os.unlink(path)

    @property
    def descriptor(self) -> int:
        """File descriptor to pass to the interpreter."""
        return self._descriptor

    def write(self, content: bytes) -> None:
        """Put this into it, for good. Anyone who reads it begins at the beginning."""
        written = 0
        while written < len(content):
            written += os.pwrite(self._descriptor, content[written:], written)
        if self._in_memory:
            seals = 0
            for name in _SEALS:
                seals |= getattr(fcntl, name)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, seals)

    def close(self) -> None:
        """Give it up here; the interpreter may go on reading."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

"""`python -m loopline.bench.proofs.faults.worker CLOCK SETTINGS.json`: a worker with a shifted
clock.

CLOCK contains a double: the seconds by which the clock is ahead. It is read at every reading of the
clock, so that the clock can jump under a running worker. `time.monotonic` is not affected.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path


def shift_clock(clock: Path) -> None:
    """Shift this process's time of day by the error in the file, from now on."""
    with clock.open("rb") as file:
        error = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    right, right_ns, read = time.time, time.time_ns, struct.Struct("d").unpack_from
    time.time = lambda: right() + read(error)[0]
    time.time_ns = lambda: right_ns() + int(read(error)[0] * 1e9)


if __name__ == "__main__":
    shift_clock(Path(sys.argv.pop(1)))
    from loopline.workers.__main__ import main

    sys.exit(main())

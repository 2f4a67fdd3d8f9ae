"""`python -m tests.runtime.gateway.garbage_counting_gateway FILE …`: a gateway that keeps what only
the garbage collector frees after SIGUSR1, and writes its types to FILE at SIGUSR2."""

from __future__ import annotations

import gc
import json
import signal
import sys
from collections import Counter
from pathlib import Path

from loopline.bench.proofs import gateway_process


def _begin(*_: object) -> None:
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)


def _write(*_: object) -> None:
    gc.collect()
    types = Counter(f"{type(item).__module__}.{type(item).__name__}" for item in gc.garbage)
    unfinished = Path(sys.argv[1]).with_suffix(".unfinished")
    unfinished.write_text(json.dumps(types))
    unfinished.rename(sys.argv[1])


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _write)
    gateway_process._main(*map(Path, sys.argv[2:]))  # pyright: ignore[reportPrivateUsage]

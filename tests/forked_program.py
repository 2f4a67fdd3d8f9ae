"""`python -m tests.forked_program WHAT` prints how it was started, or exits in some way."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from tests import forked

_PR_GET_PDEATHSIG = 2


def start() -> dict[str, Any]:
    death = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(death))
    return {
        "words": sys.argv,
        "name": __name__,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path[0],
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "zone": time.tzname[0],
        "death": death.value,
        "copied": "tests.zygote" in sys.modules,
    }


def main(what: str) -> int:
    match what:
        case "say":
            print(json.dumps(start()), flush=True)
            os.write(int(sys.stdin.readline()), b"passed")
            atexit.register(print, "end")
            print("error", file=sys.stderr)
            return 7
        case "start":
            print(json.dumps(start()), flush=True)
            forked.PRELOADED["tests.forked_program"] = ()
            return subprocess.call([sys.executable, "-m", "tests.forked_program", "child"])
        case "child":
            print(json.dumps(start()))
            return 0
        case "wait":
            print(flush=True)
            signal.pause()
        case "raise":
            raise ValueError(what)
        case "interrupt":
            raise KeyboardInterrupt
        case _:
            sys.exit("ended by exit")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

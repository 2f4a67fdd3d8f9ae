"""Tests the sandbox and its speed here: `python -m loopline.workers.sandbox --measure`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from loopline.workers.sandbox import Ending, Sandbox, SandboxSettings, SandboxUnavailable
from loopline.workers.sandbox.limits import cores

_PROGRAM = "import sys\nprint(sum(int(word) for word in sys.stdin.read().split()))\n"


async def measure(executions: int, settings: SandboxSettings) -> float:
    """Executions per second of a small program, each in a fresh interpreter. The first ones, which
    use waiting interpreters, are not counted."""
    async with Sandbox(settings=settings) as sandbox:

        async def one(at: int) -> None:
            result = await sandbox.run(_PROGRAM, stdin=f"{at} 1")
            if (result.ending, result.stdout) != (Ending.OK, f"{at + 1}\n"):
                raise SandboxUnavailable(f"a program did not run as it should: {result}")

        await asyncio.gather(*(one(at) for at in range(settings.ready)))
        begun = time.perf_counter()
        await asyncio.gather(*(one(at) for at in range(executions)))
        return executions / (time.perf_counter() - begun)


def main() -> int:
    """Run the check; returns 0 if the sandbox works."""
    parser = argparse.ArgumentParser(prog="python -m loopline.workers.sandbox", description=__doc__)
    parser.add_argument("--measure", type=int, nargs="?", const=200, default=0, metavar="N",
                        help="run N small programs (200), print programs per second")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--unsafe-exec", action="store_true", help="without bubblewrap")
    arguments = parser.parse_args()
    settings = SandboxSettings(unsafe_exec=arguments.unsafe_exec)
    try:
        speed = asyncio.run(measure(arguments.measure or settings.ready, settings))
    except SandboxUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({"executions_per_second": round(speed, 1), "cores": cores()}))
    elif arguments.measure:
        print(f"{speed:.1f} executions/s on {cores()} cores, {settings.parallel} at once")
    else:
        print("the sandbox works")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The child of `workers.judging.math_verify`: one JSON request a line in, true or false out."""

from __future__ import annotations

import json
import logging
import resource
import sys

from workers.judging.math_verify import ALARM_SECONDS, MEMORY_BYTES

CPU_SECONDS = 60
"""Of one request: more than the alarms leave it. A parent that was killed can't kill this process,
and in C code it hears no alarm and sees no end of its input; then the kernel ends it."""


def main() -> None:
    """Answer requests until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)
    # The grammar is built at the first use; no prediction should pay for that with its time.
    verify(parse("$\\frac{1}{2}$"), parse("\\boxed{0.5}"))
    print("ready", flush=True)
    for line in sys.stdin:
        _end_by(CPU_SECONDS)
        request = json.loads(line)
        try:
            # The order of arguments matters: verify(gold, target) is not symmetric.
            verdict = verify(
                parse(request["gold"], parsing_timeout=ALARM_SECONDS),
                parse(request["prediction"], parsing_timeout=ALARM_SECONDS),
                timeout_seconds=ALARM_SECONDS,
            )
        except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - a verdict for any text
            verdict = False
        print("true" if verdict else "false", flush=True)


def _end_by(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = seconds + round(used.ru_utime + used.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


if __name__ == "__main__":
    main()

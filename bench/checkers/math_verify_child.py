"""The child of `bench.checkers.math_verify`: one JSON request a line in, true or false out."""

from __future__ import annotations

import json
import logging
import resource
import sys

from bench.checkers.math_verify import ALARM_SECONDS, MEMORY_BYTES


def main() -> None:
    """Answer requests until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)
    # The grammar is built at the first use; no prediction should pay for that with its time.
    verify(parse("$\\frac{1}{2}$"), parse("\\boxed{0.5}"))
    print("ready", flush=True)
    for line in sys.stdin:
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


if __name__ == "__main__":
    main()

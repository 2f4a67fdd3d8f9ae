"""`python -m loopline.workers.scripted_api`: runs the scripted server as a separate process."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys

import uvloop
from pydantic import ValidationError

from loopline.workers.engines.faults import FAULT_KINDS, FaultPlan
from loopline.workers.scripted_api.app import ServerOptions
from loopline.workers.scripted_api.server import ScriptedServer


def main() -> int:
    """Serve until SIGTERM or Ctrl-C. Exit code 2 for bad options, 1 if the port is taken."""
    try:
        options = _options(_parser().parse_args())
    except (ValidationError, ValueError) as error:
        print(f"scripted_api: {error}", file=sys.stderr)
        return 2
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(options))
        except OSError as error:
            print(
                f"scripted_api: cannot listen on {options.host}:{options.port}: {error}; "
                "choose another --port, or 0 for a free one",
                file=sys.stderr,
            )
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loopline.workers.scripted_api", description=__doc__
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds to the first token")
    parser.add_argument("--tokens-per-second", type=float, default=None)
    parser.add_argument("--model", action="append", default=[], help="serve only these names")
    parser.add_argument(
        "--mistake",
        action="append",
        default=[],
        metavar="MODEL=RATE",
        help="rate of wrong sub-answers",
    )
    parser.add_argument("--max-context", type=int, default=None)
    parser.add_argument(
        "--require-key-env",
        default=None,
        metavar="NAME",
        help="environment variable with the accepted key",
    )
    parser.add_argument(
        "--idempotent", action="store_true", help="answer each Idempotency-Key only once"
    )
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND=RATE", help=", ".join(FAULT_KINDS)
    )
    parser.add_argument("--fault-seed", type=int, default=0)
    parser.add_argument("--retry-after", type=float, default=0.05, help="seconds, sent with a 429")
    return parser


def _options(arguments: argparse.Namespace) -> ServerOptions:
    key = None
    if arguments.require_key_env is not None:
        key = os.environ.get(arguments.require_key_env)
        if not key:
            raise ValueError(f"--require-key-env: {arguments.require_key_env} is not set")
    faults: dict[str, object] = dict(_rates("--fault", arguments.fault))
    faults.update(seed=arguments.fault_seed, retry_after_seconds=arguments.retry_after)
    return ServerOptions(
        host=arguments.host,
        port=arguments.port,
        models=tuple(arguments.model),
        require_key=key,
        latency_seconds=arguments.latency,
        tokens_per_second=arguments.tokens_per_second,
        mistakes=_rates("--mistake", arguments.mistake),
        max_context=arguments.max_context,
        idempotent=arguments.idempotent,
        faults=FaultPlan.model_validate(faults),
    )


def _rates(option: str, pairs: list[str]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for pair in pairs:
        name, equals, rate = pair.rpartition("=")
        if not equals:
            raise ValueError(f"{option} {pair}: expected NAME=RATE, for example slm=0.1")
        rates[name] = float(rate)
    return rates


async def _serve(options: ServerOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with ScriptedServer(options) as server:
        print(json.dumps({"url": server.url, "pid": os.getpid()}), flush=True)
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())

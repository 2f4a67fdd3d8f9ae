"""`python -m loopline.workers SETTINGS.json`: runs one worker from a settings file (`-`: stdin)."""

from __future__ import annotations

import sys
from pathlib import Path

import uvloop
from pydantic import ValidationError

from loopline.bus import BusUnavailable, DeploymentChanged, DeploymentMismatch
from loopline.workers.engines.protocol import EngineError
from loopline.workers.gc_tuning import skip_final_collection
from loopline.workers.process import Worker
from loopline.workers.settings import worker_settings

JOIN_SECONDS = 60.0
"""Longest wait for Redis: after a restart it first reads its log."""


def main() -> int:
    skip_final_collection()
    if len(sys.argv) != 2:
        print("usage: python -m loopline.workers SETTINGS.json", file=sys.stderr)
        return 2
    source = sys.argv[1]
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text("utf-8")
        settings = worker_settings.validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        print(f"{source}: {error}", file=sys.stderr)
        return 2
    except ValidationError as error:
        # Omit the values: one of them is the Redis URL, which contains the password.
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        for detail in errors:
            place = ".".join(map(str, detail["loc"])) or "settings"
            print(f"{source}: {place}: {detail['msg']}", file=sys.stderr)
        return 2
    try:
        while True:
            try:
                uvloop.run(Worker(settings, join_seconds=JOIN_SECONDS).run())
                break
            except DeploymentChanged:
                continue  # Join again with the deployment's current settings.
    except (BusUnavailable, DeploymentMismatch, EngineError) as error:
        print(f"{settings.kind} worker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

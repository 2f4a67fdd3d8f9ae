"""`python -m loopline.bench.proofs.gateway_faults.gateway PROFILE STATE WORKER.json`: a gateway
whose settings lie in the file PROFILE, as the supervisor writes it."""

from __future__ import annotations

import sys
from pathlib import Path

import uvloop

from loopline.runtime.config.settings import load_resolved_file
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.gateway.front import GatewayFront
from loopline.workers.__main__ import JOIN_SECONDS
from loopline.workers.gc_tuning import end_quickly
from loopline.workers.process import Worker
from loopline.workers.settings import worker_settings


def main(profile: Path, state: Path, worker: Path) -> None:
    end_quickly()
    front = GatewayFront(load_resolved_file(profile), StateDirectory(state))
    settings = worker_settings.validate_json(worker.read_text("utf-8"))
    uvloop.run(Worker(settings, join_seconds=JOIN_SECONDS, front=front).run())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""The deployment that a stream runs on: the profile `micro` with an endpoint as its big model."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopline.bench.improve.big_model import BigModel
from loopline.bench.improve.settings import StreamSettings
from loopline.runtime.client.deployment import Deployment, find
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import Unreachable
from loopline.runtime.supervise.control import ask_supervisor
from loopline.runtime.supervise.detached import temporary_deployment
from loopline.trainers.core.background_loop import BackgroundLoop
from loopline.workers.scripted_api.server import ScriptedServer

_LEFT_SECONDS = 60.0
"""For the deployment of a stream that was killed to end: Linux has told its supervisor to."""
_ATTACKED = ("planner", "gpu", "tool", "recorder")
_CONCURRENCY = 64


@contextmanager
def stream_deployment(
    folder: Path, settings: StreamSettings, big: BigModel
) -> Generator[Deployment]:
    """For the time of the block, with its state under `folder`; one that was killed goes on with
    what it has there. Raises `UserError`."""
    before = os.environ.get("LOOPLINE_STATE")
    os.environ["LOOPLINE_STATE"] = str((folder / "deployment").resolve())
    try:
        _await_end_of_last()
        with BackgroundLoop() as loop:
            server = loop.run(ScriptedServer(reply=big.reply).__aenter__())
            try:
                with temporary_deployment(
                    "micro", _overrides(settings, server.url), "bench improve"
                ):
                    yield find()
            finally:
                loop.run(server.__aexit__())
    finally:
        if before is None:
            del os.environ["LOOPLINE_STATE"]
        else:
            os.environ["LOOPLINE_STATE"] = before


def _await_end_of_last() -> None:
    state, until = StateDirectory.from_environment(), time.monotonic() + _LEFT_SECONDS
    while state.holder() is not None and time.monotonic() < until:
        time.sleep(0.1)


def _overrides(settings: StreamSettings, url: str) -> list[str]:
    prices, loop = settings.prices, settings.loop
    adapters = [name.partition("/")[2] for name in (loop.policy, loop.candidate)]
    values: dict[str, object] = {
        "models.llm.engine": "openai",
        "models.llm.model": "big",
        "models.llm.base_url": url,
        "models.llm.max_concurrency": _CONCURRENCY,
        "models.llm.price.prompt": prices.big_prompt,
        "models.llm.price.completion": prices.big_completion,
        "models.slm.model": loop.training.model,
        "models.slm.price.prompt": round(prices.small_prompt, 6),
        "models.slm.price.completion": round(prices.small_completion, 6),
        "models.slm.base_until_published": adapters,
        "policies.first": loop.policy,
        "workers.planner.roles": ["solo", "first"],
        "workers.planner.concurrency": _CONCURRENCY,
        "workers.slm.count": 0,
        "workers.gateway.count": 0,
        "workers.jobs.count": 0,
    }
    return [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
    ]


def kill_a_worker(deployment: Deployment, seed: str) -> str | None:
    """SIGKILL to one that is ready, drawn by the seed; its name. None where none is ready."""
    if deployment.run is None:
        return None
    try:
        status = ask_supervisor(deployment.run.control, {"do": "status"})
    except Unreachable:
        return None
    workers: list[dict[str, Any]] = [
        worker
        for worker in status["workers"]
        if worker["state"] == "ready" and worker["pid"] and worker["kind"] in _ATTACKED
    ]
    if not workers:
        return None
    worker = random.Random(seed).choice(workers)
    os.kill(worker["pid"], signal.SIGKILL)
    return str(worker["name"])

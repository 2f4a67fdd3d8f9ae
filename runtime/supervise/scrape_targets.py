"""Writes the addresses of the workers' metrics to the file that Prometheus' `file_sd_configs` reads
and watches: each worker has a new port after every start."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import orjson
import structlog

from loopline.bus import WorkerPresence
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.supervise.worker_name import slot_of
from loopline.workers.atomic_files import write_atomic
from loopline.workers.messages import METRICS_ADDRESS
from loopline.workers.settings import MetricsSettings

log = structlog.get_logger("loopline.runtime.supervise.scrape_targets")


class ScrapeTargets:
    """The file, which is written again whenever its content changes."""

    def __init__(self, state: StateDirectory, settings: MetricsSettings) -> None:
        self._path = state.scrape_targets
        self._enabled = settings.enabled
        self._written = b""

    def write(self, workers: Iterable[WorkerPresence]) -> None:
        """List this machine's workers that serve metrics; another machine's supervisor has its own
        file. A failed write is logged and retried at the next call."""
        if not self._enabled:
            return
        here = socket.gethostname()
        groups = [
            {
                "targets": [address],
                "labels": {"worker": slot_of(worker.name), "worker_kind": worker.kind},
            }
            for worker in workers
            if worker.host == here
            and isinstance(address := worker.details.get(METRICS_ADDRESS), str)
        ]
        body = orjson.dumps(groups, option=orjson.OPT_INDENT_2)
        if body == self._written:
            return
        try:
            write_atomic(self._path, body)
        except OSError as error:
            log.error("scrape targets not written", path=str(self._path), error=str(error))
            return
        self._written = body

    def remove(self) -> None:
        """Record that no worker serves metrics any more."""
        self._path.unlink(missing_ok=True)

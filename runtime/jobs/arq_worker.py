"""arq's worker, extended to survive Redis outages.

arq gives up at the first Redis error: it stops reading the queue and cancellations, and only waits
for its running jobs. This worker waits for the outage to end, and the running job does not notice
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from arq.worker import Worker

from loopline.bus.connection import OUTAGE
from loopline.runtime.jobs.programs import RETRY_SECONDS

log = structlog.get_logger("loopline.runtime.jobs.queue")


class LastingWorker(Worker):
    """Worker that raises what `Worker` raises until its first read of the queue, and survives
    outages afterwards."""

    _away = False

    async def _poll_iteration(self) -> None:
        try:
            await super()._poll_iteration()
        except OUTAGE as error:
            if not self._away:
                log.warning("waiting for the bus", error=str(error), again_in=RETRY_SECONDS)
            self._away = True
            await asyncio.sleep(RETRY_SECONDS)
        else:
            self._away = False

    async def start_jobs(self, job_ids: list[bytes]) -> None:
        try:
            await super().start_jobs(job_ids)
        except OUTAGE:
            # The outage came after a job got its slot and before its start, and nothing else frees
            # the slot.
            self._release_sem_dec_counter_on_complete()
            raise

    async def finish_job(self, *args: Any, **kwargs: Any) -> None:
        """Report a job that ended during an outage; otherwise it would be started again."""
        await self._retry_until_sent(lambda: super(LastingWorker, self).finish_job(*args, **kwargs))

    async def finish_failed_job(self, job_id: str, result_data: bytes | None) -> None:
        await self._retry_until_sent(
            lambda: super(LastingWorker, self).finish_failed_job(job_id, result_data)
        )

    async def _retry_until_sent(self, tell: Callable[[], Awaitable[None]]) -> None:
        """Retry until the server has received it; send only once if this worker is to stop."""
        while True:
            try:
                return await tell()
            except OUTAGE:
                task = self.main_task
                if task is None or task.done() or task.cancelling():
                    raise
            await asyncio.sleep(RETRY_SECONDS / 4)

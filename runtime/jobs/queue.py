"""Offline jobs on an arq queue, such as a benchmark that outlives the terminal.

A job is a command line of one of our own programs. It runs as a separate process, and its output is
kept in the state directory. Everything on the queue is JSON: with arq's default, pickle, anyone who
can write to Redis could run any code.

arq marks a job as in progress for its maximum duration (a day), so a killed worker would block the
job that long. Therefore, the worker that runs a job renews a claim on it, and any jobs worker frees
unclaimed jobs. A benchmark that is started again resumes.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Literal, cast

import structlog
from arq.connections import ArqRedis
from arq.constants import abort_jobs_ss, in_progress_key_prefix, result_key_prefix
from arq.jobs import DeserializationError, Job, JobResult, JobStatus
from arq.worker import Function, func
from pydantic import BaseModel

from loopline.bus import Bus, WorkerPresence, announce, connection_pool
from loopline.bus.connection import OUTAGE
from loopline.bus.remedies import remedy
from loopline.runtime import __version__
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import InputError, Unreachable
from loopline.runtime.jobs.arq_worker import LastingWorker
from loopline.runtime.jobs.programs import STOP_SECONDS, run_program, serve_through_outages
from loopline.runtime.jobs.requests import JobRequest, require_allowed
from loopline.runtime.terminal.unreadable import why_unreadable
from loopline.workers.messages import METRICS_ADDRESS

log = structlog.get_logger("loopline.runtime.jobs.queue")

FUNCTION = "run_program"
QUEUE_LIFE_SECONDS = 30 * 86_400
CANCEL_GRACE_SECONDS = 10.0
"""Seconds until a worker notices a cancellation, and until the stopped job is listed as ended."""
MAX_TRIES = 1_000
"""Maximum attempts of a job. arq counts a drain or a crash of the worker as an attempt; neither is
the job's fault."""


_UNREADABLE = (DeserializationError, ValueError, KeyError, TypeError, IndexError)
"""Errors when reading a job that another program or version has written."""


class JobView(BaseModel):
    """One job as listed by `runtime jobs`."""

    id: str
    state: Literal["queued", "running", "cancelling", "done", "failed", "cancelled"]
    command: str
    output: str
    log: str = ""
    queued: float
    """Time of queuing in Unix seconds."""
    seconds: float | None = None
    exit_code: int | None = None
    reason: str = ""


def queue_name(settings: Settings) -> str:
    return f"{settings.bus.prefix}:jobs"


def claim_key(settings: Settings, job_id: str) -> str:
    return f"{settings.bus.prefix}:job-claim:{job_id}"


def cancel_key(settings: Settings, job_id: str) -> str:
    return f"{settings.bus.prefix}:job-cancel:{job_id}"


def to_json(value: Any) -> bytes:
    """Encode arq's messages as JSON. An exception, the only part that isn't plain data, becomes its
    text."""
    return json.dumps(value, default=_describe_error).encode()


def _describe_error(value: object) -> str:
    if isinstance(value, asyncio.CancelledError):
        return "cancelled"
    return f"{type(value).__name__}: {value}"


async def connect(settings: Settings) -> ArqRedis:
    """Connect to the queue. Raises `Unreachable`."""
    pool = _pool(settings)
    try:
        await pool.ping()
    except OUTAGE as error:
        await pool.aclose(close_connection_pool=True)
        raise Unreachable(
            f"Redis at {settings.bus.safe_url} does not answer: {error}", hint=f"{remedy(error)}."
        ) from error
    return pool


def _pool(settings: Settings) -> ArqRedis:
    """Create the pool from the URL as redis-py does: arq's own parser leaves a password
    percent-encoded, and drops certificate options."""
    return ArqRedis(
        connection_pool.pool(
            settings.bus.redis_url,
            max_connections=32,
            wait_seconds=10.0,
            socket_connect_timeout=5,
            # Much shorter than a claim's lifetime, which a wait for a silently vanished peer would
            # outlast.
            socket_timeout=max(1.0, settings.jobs.claim_seconds / 6),
        ),
        job_serializer=to_json,
        job_deserializer=json.loads,
        default_queue_name=queue_name(settings),
        expires_extra_ms=QUEUE_LIFE_SECONDS * 1000,
    )


async def enqueue(settings: Settings, request: JobRequest) -> str:
    """Put a job on the queue; return its id. Raises `Unreachable`."""
    pool = await connect(settings)
    try:
        job_id = f"{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        await pool.enqueue_job(FUNCTION, request.model_dump(), _job_id=job_id)
        await pool.expire(queue_name(settings), QUEUE_LIFE_SECONDS)
        return job_id
    finally:
        await pool.aclose(close_connection_pool=True)


async def list_jobs(settings: Settings) -> tuple[list[JobView], list[str]]:
    """Return all queued, running and remembered jobs, newest first, and the reasons why further
    jobs can't be read."""
    pool = await connect(settings)
    name = queue_name(settings)
    views: dict[str, JobView] = {}
    unreadable: list[str] = []
    try:
        for job_id in (entry.decode() for entry in await pool.zrange(name, 0, -1)):
            try:
                queued = await _job(pool, settings, job_id).info()
                if queued is None or isinstance(queued, JobResult):
                    continue  # It has ended since the queue was read; its result is read below.
                state = await _state(pool, settings, job_id)
                views[job_id] = _view(job_id, queued.args, state).model_copy(
                    update={"queued": queued.enqueue_time.timestamp()}
                )
            except _UNREADABLE as error:
                unreadable.append(why_unreadable(f"the job {job_id}", error))
        async for key in pool.scan_iter(match=f"{result_key_prefix}*"):
            job_id = key.decode().removeprefix(result_key_prefix)
            try:
                ended = await _job(pool, settings, job_id).result_info()
            except DeserializationError:
                continue  # Another program on this Redis wrote it: arq's default is pickle.
            if ended and ended.queue_name == name:
                try:
                    views[job_id] = _ended_view(job_id, ended)
                except _UNREADABLE as error:
                    unreadable.append(why_unreadable(f"the result of the job {job_id}", error))
    finally:
        await pool.aclose(close_connection_pool=True)
    return sorted(views.values(), key=lambda view: view.queued, reverse=True), unreadable


async def _state(pool: ArqRedis, settings: Settings, job_id: str) -> str:
    """Return the state of a job that has not ended."""
    # arq removes its own mark as soon as it starts to stop a job.
    has_abort = await pool.zscore(abort_jobs_ss, job_id) is not None
    if has_abort or await pool.exists(cancel_key(settings, job_id)):
        return "cancelling"
    running = await _job(pool, settings, job_id).status() == JobStatus.in_progress
    return "running" if running else "queued"


def _view(job_id: str, args: Any, state: str) -> JobView:
    # If a job waited until its request expired, only its id is left.
    request = JobRequest.model_validate(args[0]) if args else None
    return JobView.model_validate(
        {
            "id": job_id,
            "state": state,
            "command": " ".join([request.program, *request.argv]) if request else "",
            "output": request.output if request else "",
            "queued": 0.0,
        }
    )


def _ended_view(job_id: str, ended: JobResult) -> JobView:
    view = _view(job_id, ended.args, "done")
    result: Any = ended.result
    update: dict[str, Any] = {
        "queued": ended.enqueue_time.timestamp(),
        "seconds": (ended.finish_time - ended.start_time).total_seconds(),
    }
    if not ended.success:
        cancelled = result == "cancelled"
        update |= {"state": "cancelled" if cancelled else "failed", "reason": str(result)}
    elif isinstance(result, dict):
        outcome = cast(dict[str, Any], result)
        update |= {"log": outcome["log"], "exit_code": outcome["exit_code"]}
        if outcome["exit_code"] != 0:
            update |= {"state": "failed", "reason": outcome["last_line"]}
    return view.model_copy(update=update)


async def cancel(settings: Settings, job_id: str) -> None:
    """Cancel a job: a queued job never starts, a running job has `STOP_SECONDS` to stop. Raises
    `InputError` if the job has ended or is unknown.
    """
    pool = await connect(settings)
    try:
        status = await _job(pool, settings, job_id).status()
        if status in (JobStatus.not_found, JobStatus.complete):
            raise InputError(
                f"job {job_id} {'has ended' if status == JobStatus.complete else 'is not known'}",
                hint="`runtime jobs` lists them.",
            )
        # Our mark comes first: it outlives arq's mark by the time that the job may take to stop.
        life = int((STOP_SECONDS + CANCEL_GRACE_SECONDS) * 1000)
        await pool.set(cancel_key(settings, job_id), "1", px=life)
        async with pool.pipeline(transaction=True) as pipe:
            pipe.zadd(abort_jobs_ss, {job_id: int(time.time() * 1000)})
            pipe.expire(abort_jobs_ss, QUEUE_LIFE_SECONDS)
            await pipe.execute()
    finally:
        await pool.aclose(close_connection_pool=True)


def _job(pool: ArqRedis, settings: Settings, job_id: str) -> Job:
    return Job(job_id, pool, _queue_name=queue_name(settings), _deserializer=json.loads)


# -- the worker -------------------------------------------------------------------------------


def run_jobs_worker(settings: Settings, name: str, state: StateDirectory) -> None:
    """Serve the queue until SIGTERM; a running job is stopped and started again later."""
    asyncio.run(serve_through_outages(lambda: _serve(settings, name, state)))


async def _serve(settings: Settings, name: str, state: StateDirectory) -> None:
    busy: set[str] = set()
    details: dict[str, Any] = {}

    async def run_program(ctx: dict[Any, Any], request: dict[str, Any]) -> dict[str, Any]:
        job_id = str(ctx["job_id"])
        busy.add(job_id)
        claim = bus.background.start(
            _keep_claim(ctx["redis"], settings, job_id), name=f"claim of {job_id}"
        )
        try:
            job_request = JobRequest.model_validate(request)
            require_allowed(job_request, state)
            return await _run(job_request, job_id, settings, state)
        finally:
            busy.discard(job_id)
            await bus.background.stop([claim])

    def describe() -> WorkerPresence:
        return WorkerPresence(
            name=name,
            kind="jobs",
            version=__version__,
            state="ready",
            busy=len(busy),
            concurrency=settings.jobs.max_jobs,
            started=started,
            details={"jobs": sorted(busy)} | details,
        )

    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(Bus(settings.bus))
        if settings.metrics.enabled:
            from loopline.workers.metrics import ProcessMetrics

            metrics = ProcessMetrics(settings.metrics, kind="jobs", version=__version__)
            metrics.serve()
            stack.callback(metrics.close)
            details[METRICS_ADDRESS] = metrics.address
        started = bus.clock.now()
        worker = _worker(settings, func(run_program, name=FUNCTION))
        # arq only handles SIGTERM and SIGINT; SIGHUP of a closed terminal must stop it, too.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGHUP, os.kill, os.getpid(), signal.SIGTERM
            )
        bus.background.start(announce(bus, describe), name="presence")
        bus.background.start(_free_unclaimed(bus, settings, busy), name="unclaimed jobs")
        try:
            await bus.background.run(worker.async_run())
        except asyncio.CancelledError:
            log.info("jobs worker stopped", left=sorted(busy))
        finally:
            await bus.background.end()
            # A worker that stops during an outage skips the sign-off: its presence expires.
            with suppress(*OUTAGE):
                await worker.close()


def _worker(settings: Settings, program: Function) -> LastingWorker:
    return LastingWorker(
        functions=[program],
        queue_name=queue_name(settings),
        redis_pool=_pool(settings),
        max_jobs=settings.jobs.max_jobs,
        job_timeout=settings.jobs.timeout_seconds,
        keep_result=settings.jobs.keep_result_seconds,
        max_tries=MAX_TRIES,
        allow_abort_jobs=True,
        job_serializer=to_json,
        job_deserializer=json.loads,
        health_check_interval=60,
    )


async def _keep_claim(redis: ArqRedis, settings: Settings, job_id: str) -> None:
    while True:
        with suppress(*OUTAGE):  # retried soon
            life = int(settings.jobs.claim_seconds * 1000)
            await redis.set(claim_key(settings, job_id), "1", px=life)
        await asyncio.sleep(settings.jobs.claim_seconds / 3)


class UnclaimedJobs:
    """Records since when jobs have had no claim. Pure: time is an argument.

    One check is not enough: a starting job is marked before it is claimed, and a Redis outage may
    outlast the claims of live workers, which renew them soon afterwards.
    """

    def __init__(self, claim_seconds: float) -> None:
        self._patience = claim_seconds / 2
        """Longer than a worker's interval between two renewals, a third of a claim's lifetime."""
        self._since: dict[str, float] = {}

    def gone(self, job_ids: Collection[str], now: float) -> list[str]:
        """Return the jobs that no worker runs any more, given the jobs without a claim at `now`
        (monotonic seconds). Each job is returned once."""
        self._since = {job_id: self._since.get(job_id, now) for job_id in job_ids}
        overdue_jobs = [job for job, since in self._since.items() if now - since >= self._patience]
        for job_id in overdue_jobs:
            del self._since[job_id]
        return overdue_jobs

    def forget(self) -> None:
        """Reset the records after an outage, in which no worker could renew a claim."""
        self._since.clear()


async def _free_unclaimed(bus: Bus, settings: Settings, local_job_ids: set[str]) -> None:
    """Free jobs that are marked as in progress although their worker died."""
    unclaimed = UnclaimedJobs(settings.jobs.claim_seconds)
    while True:
        try:
            queued = await bus.redis.zrange(queue_name(settings), 0, -1)
            unclaimed_ids: set[str] = set()
            for job_id in (entry.decode() for entry in queued):
                marked = await bus.redis.exists(in_progress_key_prefix + job_id)
                claimed = await bus.redis.exists(claim_key(settings, job_id))
                if marked and not claimed and job_id not in local_job_ids:
                    unclaimed_ids.add(job_id)
            for job_id in unclaimed.gone(unclaimed_ids, time.monotonic()):
                log.warning("job released: its worker is gone", job=job_id)
                await bus.redis.delete(in_progress_key_prefix + job_id)
        except OUTAGE as error:
            unclaimed.forget()
            log.warning("claims not checked", error=str(error))
        await asyncio.sleep(min(2.0, settings.jobs.claim_seconds / 3))


async def _run(
    request: JobRequest, job_id: str, settings: Settings, state: StateDirectory
) -> dict[str, Any]:
    folder = state.jobs / job_id
    folder.mkdir(parents=True, exist_ok=True)
    output_log = folder / "output.log"
    argv = request.argv
    # Resume a benchmark only if this job started it, not one of another job.
    again = output_log.exists()
    if again and request.program == "bench" and request.output and _has_begun(Path(request.output)):
        argv = ["resume", request.output]
    log.info("job started", job=job_id, program=request.program, argv=argv)
    output_log.touch()  # marks the start, even if the job prints nothing
    code, last_line = await run_program(
        request.program, argv, Path(request.cwd), output_log, settings, state
    )
    log.info("job ended", job=job_id, exit_code=code)
    return {"exit_code": code, "log": str(output_log), "last_line": last_line}


def _has_begun(output: Path) -> bool:
    return (output / "manifest.json").exists()

"""The current state of a deployment from two sources: the bus, with the presence of every worker on
every machine, and this machine's supervisor, which also knows silent processes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection
from typing import Any

import psutil
from pydantic import BaseModel, Field
from redis.exceptions import NoPermissionError

from loopline.agents.workflows import serving_role
from loopline.bus import Bus, live_workers
from loopline.bus.circuits import open_since_failures
from loopline.bus.keys import GROUP
from loopline.runtime import __version__
from loopline.runtime.client.deployment import Deployment
from loopline.runtime.config.settings import Settings
from loopline.runtime.errors import Unreachable
from loopline.runtime.supervise.control import ask_supervisor
from loopline.runtime.supervise.worker_name import kind_of
from loopline.workers.messages import JUDGE_STREAM, TOOL_STREAM, inference_stream, role_stream


class WorkerStatus(BaseModel):
    """One worker, as described by its heartbeat and its supervisor."""

    name: str
    kind: str
    state: str
    host: str = ""
    pid: int | None = None
    busy: int = 0
    concurrency: int = 0
    version: str = ""
    build: str = ""
    """Version and commit of the worker's program."""
    up_seconds: float = 0.0
    restarts: int = 0
    reason: str = ""
    last_lines: list[str] = Field(default_factory=list)
    skew_seconds: float = 0.0
    """Seconds by which the machine's wall clock is ahead of the bus's clock."""
    details: dict[str, Any] = Field(default_factory=dict)


class StreamStatus(BaseModel):
    """One work stream over all shards."""

    name: str
    waiting: int
    """Number of messages that no worker has taken yet: the real lag."""
    leased: int
    """Number of messages that workers are processing."""
    delayed: int
    """Number of retries that are not due yet."""
    oldest_seconds: float = 0.0
    """Waiting time of the oldest waiting message in seconds."""


class Status(BaseModel):
    """Everything that `runtime status` shows."""

    phase: str
    """State: `ready`, `starting`, `degraded`, `draining`; without a supervisor here, `joined`, or
    `silent` if the bus has no worker's heartbeat."""
    profile: str = ""
    version: str = __version__
    builds: dict[str, list[str]] = Field(default_factory=dict)
    """Names of workers by build."""
    gateway: dict[str, str] | None = None
    """`url` of OpenAI's API and `key_file` with a key for it; None without a gateway here."""
    redis: dict[str, Any] = Field(default_factory=dict)
    """Address of the bus and its memory use; a limit of 0 means no limit."""
    workers: list[WorkerStatus] = Field(default_factory=list[WorkerStatus])
    streams: list[StreamStatus] = Field(default_factory=list[StreamStatus])
    runs_in_flight: int = 0
    runs_queued: int = 0
    """Number of runs that wait for their turn; they are not in flight."""
    waits: int = 0
    """Number of runs that wait for a signal, an approval, or their time; they are not in flight."""
    unrecorded: int = 0
    """Number of ended runs and posted rewards that the recorder has not written yet."""
    dead_letters: int = 0
    breakers: dict[str, int] = Field(default_factory=dict)
    """Number of consecutive failed requests, by pool whose endpoint is paused."""
    bus_error: str = ""
    """Reason why the bus could not be reached; empty if it could."""
    supervisor_error: str = ""
    """Reason why the supervisor of this state directory could not be reached; empty if it could."""
    unserved: list[str] = Field(default_factory=list)
    """Kinds of worker without a ready worker."""


async def collect(deployment: Deployment, bus: Bus | None) -> Status:
    """Query both sources. Without a bus (Redis is down), only the supervisor's half remains."""
    supervised, trouble = _supervisor(deployment)
    status = Status(
        phase="joined", redis={"url": deployment.settings.bus.safe_url}, supervisor_error=trouble
    )
    if supervised is not None:
        status.phase, status.profile = supervised["phase"], supervised["profile"]
        status.redis, status.gateway = supervised["redis"], supervised.get("gateway")
    heard: dict[str, WorkerStatus] = {}
    if bus is not None:
        await ask_bus(status, bus, deployment.settings)
        heard = {worker.name: worker for worker in await workers_by_heartbeat(bus)}
    for worker_entry in (supervised or {}).get("workers", []):
        if (
            bus is not None
            and worker_entry["state"] == "ready"
            and worker_entry["name"] not in heard
        ):
            worker_entry["state"] = "silent"
        worker = heard.setdefault(
            worker_entry["name"],
            WorkerStatus(
                name=worker_entry["name"], kind=worker_entry["kind"], state=worker_entry["state"]
            ),
        )
        if worker_entry["state"] != "ready" or bus is None:
            worker.state = worker_entry["state"]
        worker.pid, worker.restarts = worker_entry["pid"], worker_entry["restarts"]
        worker.reason, worker.last_lines = worker_entry["reason"], worker_entry["last_lines"]
    status.workers = sorted(heard.values(), key=lambda worker: (worker.kind, worker.name))
    for worker in status.workers:
        if worker.build:
            status.builds.setdefault(worker.build, []).append(worker.name)
    configured = () if supervised else _kinds_in_use(deployment.settings)
    judge(status, configured)
    return status


def _kinds_in_use(settings: Settings) -> list[str]:
    """Return the kinds of worker that the deployment's configuration starts."""
    return [kind for kind, worker in settings.workers.items() if worker.count]


def judge(status: Status, configured: Collection[str] = ()) -> None:
    """Derive the state from both sources. A supervisor checks once a second; a bus that can't be
    reached reports no workers. Without a supervisor here, nothing but `configured` tells of a kind
    whose workers are all gone."""
    if status.phase not in ("ready", "degraded", "joined"):
        return  # the deployment is starting or stopping, and its phase states that
    states = {worker.state for worker in status.workers}
    serving = {w.kind for w in status.workers if w.state in ("ready", "draining")}
    status.unserved = sorted({*configured, *(w.kind for w in status.workers)} - serving)
    if status.phase == "ready" and (status.unserved or not serving or "silent" in states):
        status.phase = "degraded"
    if status.phase == "joined" and not serving:
        status.phase = "silent"


def supervisor_status(deployment: Deployment) -> dict[str, Any] | None:
    """Return the report of the supervisor on this machine; `None` if there is none, or no
    answer."""
    return _supervisor(deployment)[0]


def _supervisor(deployment: Deployment) -> tuple[dict[str, Any] | None, str]:
    """Return the supervisor's status, or the reason why there is none."""
    if deployment.run is None:
        return None, ""
    try:
        return ask_supervisor(deployment.run.control, {"do": "status"}), ""
    except Unreachable as error:
        # A supervisor that stopped since the lookup of the deployment is not an error.
        ended = deployment.state.running() is None
        return None, "" if ended else f"{error.args[0]} (pid {deployment.run.pid})"


async def workers_by_heartbeat(bus: Bus) -> list[WorkerStatus]:
    """Return the workers by their heartbeats. The heartbeats of a killed process remain for three
    beats; on this machine the supervisor knows immediately."""
    now, here = bus.clock.now(), socket.gethostname()
    return [
        WorkerStatus(
            name=worker.name,
            kind=kind_of(worker.name),
            state=worker.state,
            host=worker.host,
            pid=worker.pid,
            busy=worker.busy,
            concurrency=worker.concurrency,
            version=worker.version,
            build=worker.build,
            up_seconds=max(0.0, now - worker.started),
            skew_seconds=worker.skew,
            details=worker.details,
        )
        for worker in await live_workers(bus)
        if worker.host != here or psutil.pid_exists(worker.pid)
    ]


async def ask_bus(status: Status, bus: Bus, settings: Settings) -> None:
    """Fill `status` with streams, runs and memory from the bus."""
    lengths = await bus.queue_lengths(stream_names(settings))
    status.streams = [await _stream(bus, name, length) for name, length in lengths.items()]
    with contextlib.suppress(NoPermissionError):  # user without INFO, which the bus doesn't need
        memory = await bus.redis.info("memory")
        status.redis["memory_bytes"] = int(memory["used_memory"])
        status.redis["memory_limit_bytes"] = int(memory.get("maxmemory", 0))
    for shard in bus.keys.all_shards():
        status.runs_in_flight += int(await bus.redis.zcard(shard.active))
        status.runs_queued += int(await bus.redis.zcard(shard.turn_waits))
        status.waits += int(await bus.redis.zcard(shard.waits))
        for stream in (shard.trajectories, shard.rewards):
            status.unrecorded += int(await bus.redis.xlen(stream))
        status.dead_letters += int(await bus.redis.xlen(shard.dead))
    for name, model in settings.models.items():
        if model.endpoint is not None:
            failures = await open_since_failures(bus.redis, bus.keys, model.endpoint)
            if failures is not None:
                status.breakers[name] = failures


async def _stream(bus: Bus, name: str, length: int) -> StreamStatus:
    leased = delayed = 0
    oldest = 0.0
    for shard in bus.keys.all_shards():
        delayed += int(await bus.redis.zcard(shard.delayed(name)))
        for group in await _groups(bus, shard.work(name)):
            if group["name"] == GROUP.encode():
                leased += int(group["pending"])
                last = group["last-delivered-id"].decode()
                oldest = max(oldest, await _first_waits(bus, shard.work(name), last))
    waiting = max(0, length - leased)
    return StreamStatus(
        name=name,
        waiting=waiting,
        leased=leased,
        delayed=delayed,
        oldest_seconds=round(oldest, 3) if waiting else 0.0,
    )


async def _first_waits(bus: Bus, key: str, last: str) -> float:
    """Return the age (s) of the first message after the id `last`, by Redis' clock; 0 without
    one."""
    entries: list[Any] = await bus.redis.xrange(key, f"({last}", "+", count=1)
    if not entries:
        return 0.0
    added = int(entries[0][0].decode().partition("-")[0]) / 1000
    return max(0.0, bus.clock.now() - added)


async def _groups(bus: Bus, key: str) -> list[dict[str, Any]]:
    """Return the groups of a stream; empty if the stream does not exist yet."""
    if not await bus.redis.exists(key):
        return []
    return await bus.redis.xinfo_groups(key)


def stream_names(settings: Settings) -> list[str]:
    """Return all work streams of this configuration."""
    roles = {role for worker in settings.workers.values() for role in worker.roles}
    roles |= {serving_role(settings.workflow, agent) for agent in settings.policies}
    return [
        *(role_stream(role) for role in sorted(roles)),
        *(inference_stream(pool) for pool in sorted(settings.models)),
        TOOL_STREAM,
        *([JUDGE_STREAM] if "judge" in settings.workers else []),
    ]

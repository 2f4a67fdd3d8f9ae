"""`runtime up`: the embedded Redis and every worker of one profile, kept alive until told to stop.

The design is crash-only: killing the supervisor is safe at any moment. Its children die with it,
their leases expire, and the next start continues from the append-only file.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import itertools
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog

from loopline.bus import BackgroundEnded, Server, WorkerPresence, tasks
from loopline.bus.presence import BEAT
from loopline.runtime import __version__
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import RunFile, StateDirectory, StateLock
from loopline.runtime.errors import UserError
from loopline.runtime.observe.log_files import rotate, rotate_output
from loopline.runtime.redis.server import RedisServer
from loopline.runtime.redis.users import user_kind
from loopline.runtime.supervise.control import ControlServer
from loopline.runtime.supervise.listener import GATEWAY, Listener
from loopline.runtime.supervise.scrape_targets import ScrapeTargets
from loopline.runtime.supervise.worker_environment import worker_environment
from loopline.runtime.supervise.worker_slot import Launch, RestartPolicy, WorkerSlot
from loopline.workers.atomic_files import write_atomic
from loopline.workers.stop_signals import stop_signals

log = structlog.get_logger("loopline.runtime.supervise.supervisor")

Presence = Callable[[], Awaitable[dict[str, WorkerPresence]]]
"""Returns the workers that are present on the bus, by name."""

Connect = Callable[[Settings], Awaitable[tuple[Server, Presence, Callable[[], Awaitable[None]]]]]
"""Joins the bus; returns its server, a `Presence`, and a function to leave."""

DRAIN_ORDER = ("gateway", "roles", "services", "writers")
"""Gateways drain first: answers in progress still need the other workers. Then role workers, which
need models and tools to finish a step. The recorder drains last: the final commits send it the last
trajectories."""

MAX_WORKERS = 256
SILENCE_SECONDS = 3 * BEAT
"""Seconds without an answer from the bus after which the bus counts as down."""
LOOK_SECONDS = 1.0
"""Seconds between two checks of the present workers and the socket files."""


class Supervisor:
    """One deployment on one machine."""

    def __init__(
        self,
        settings: Settings,
        state: StateDirectory,
        *,
        profile: str,
        connect: Connect,
    ) -> None:
        self.settings = settings
        self.state = state
        self.profile = profile
        self.redis: RedisServer | None = None
        self.redis_restarts = 0
        self._durability = ""
        self._connect = connect
        self._slots: dict[str, list[WorkerSlot]] = {kind: [] for kind in settings.workers}
        self._running: dict[WorkerSlot, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._started = time.time()
        self._phase = "starting"
        self._changed = asyncio.Event()
        self._heard = time.monotonic()
        """Time of the last answer from the bus about the present workers."""
        self._unheard = ""
        """Reason why the bus has not answered since then."""
        self._listener: Listener | None = None
        self._targets = ScrapeTargets(state, settings.metrics)

    # -- life ---------------------------------------------------------------------------------

    async def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Run until a signal or `runtime down`, or until Redis can't be kept alive.

        Raises `UserError` for anything that prevents the start.
        """
        self.state.create()
        lock = StateLock(self.state)
        control = ControlServer(self.state.socket("control.sock"), self._control)
        background = tasks.Background()
        self._background = background
        signals = contextlib.ExitStack()
        signals.enter_context(stop_signals(self._on_drain, self._on_abandon))
        try:
            gateways = self.settings.workers.get(GATEWAY)
            if gateways is not None and gateways.count:
                self._listener = Listener.open(self.settings.gateway)
            await control.start()
            background.start(self._keep_sockets(control), name="control socket")
            background.start(self._rotate_logs(), name="log rotation")
            if self.settings.own_redis and not await self._start_redis(background):
                return
            server, presence, close_presence = await self._connect(self.settings)
            self._durability = server.durability
            log.info("bus joined", url=self.settings.bus.safe_url, durability=self._durability)
            write_atomic(self.state.resolved, self.settings.to_json(), private=True)
            lock.publish(
                RunFile(
                    pid=os.getpid(),
                    started=self._started,
                    profile=self.profile,
                    redis_url=self.settings.bus.redis_url,
                    control=str(self.state.socket("control.sock")),
                    version=__version__,
                    gateway=self._listener.url if self._listener else None,
                )
            )
            self._launch = Launch(
                self.settings.supervisor,
                self._resolved_settings_file,
                self.state.logs,
                environment=lambda kind: worker_environment(self.settings, kind, os.environ),
                listener=self._listener,
            )
            for kind, worker in self.settings.workers.items():
                self._scale(kind, worker.count)
            background.start(self._watch_presence(presence), name="presence watch")
            background.start(self._announce(on_ready), name="announcement", may_end=True)
            await self._wait_until_stopped(background)
            await self._drain()
            await close_presence()
        finally:
            self._phase = "stopping"
            await background.end()
            await self._kill_all()
            if self.redis is not None:
                await self.redis.stop()
            await control.stop()
            if self._listener is not None:
                self._listener.close()
            self._targets.remove()
            lock.release()
            signals.close()

    async def _start_redis(self, background: tasks.Background) -> bool:
        """Start our own server; return False if the supervisor was stopped meanwhile."""
        self.redis = RedisServer(self.state, self.settings.redis, self.settings.bus.prefix)
        if not await self._start_unless_stopped(self.redis):
            return False
        self.settings = self.settings.with_redis_url(self.redis.url)
        log.info(
            "redis ready",
            server=str(self.redis.binary),
            pid=self.redis.pid,
            seconds=round(self.redis.started_in, 3),
        )
        background.start(self._keep_redis(self.redis), name="redis", may_end=True)
        return True

    def _resolved_settings_file(self, kind: str) -> Path:
        """Return the file with a worker's settings; for our own server, write one with the user of
        the worker's kind."""
        if self.redis is None:
            return self.state.resolved
        path = self.state.resolved_settings_file_of(kind)
        url = self.redis.url_of(user_kind(self.settings, kind))
        write_atomic(path, self.settings.with_redis_url(url).to_json(), private=True)
        return path

    async def _wait_until_stopped(self, background: tasks.Background) -> None:
        """Wait for a stop. Raises `UserError` if Redis can't be kept alive, `BackgroundEnded` if a
        background task has ended."""
        try:
            await background.run(self._stop.wait())
        except BackgroundEnded as error:
            if isinstance(error.__cause__, UserError):
                raise error.__cause__ from None
            raise

    def _on_drain(self, number: signal.Signals) -> None:
        log.info("draining", signal=number.name, abandoned_by="a second Ctrl-C or SIGQUIT")
        self._stop.set()

    def _on_abandon(self, number: signal.Signals) -> None:
        log.warning("the workers leave their work to others", signal=number.name)
        self._stop.set()
        for slot in self._running:
            slot.kill()

    async def _drain(self) -> None:
        self._phase = "draining"
        for stage in DRAIN_ORDER:
            slots = [slot for slot in self._running if self._drain_stage(slot.kind) == stage]
            await asyncio.gather(*(slot.stop() for slot in slots))
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        log.info("drained")

    def _drain_stage(self, kind: str) -> str:
        worker = self.settings.workers[kind]
        if kind == GATEWAY:
            return "gateway"
        if worker.roles:
            return "roles"
        return "services" if worker.models or kind == "tool" else "writers"

    async def _kill_all(self) -> None:
        for slot in list(self._running):
            slot.kill()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    # -- Redis --------------------------------------------------------------------------------

    async def _start_unless_stopped(self, server: RedisServer) -> bool:
        """Wait until the server is ready; return False if a stop came first, since reading a large
        file takes minutes."""
        starting = asyncio.create_task(server.start())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
            return starting.done()
        finally:
            await tasks.end([starting, stop])

    async def _keep_redis(self, server: RedisServer) -> None:
        """Restart the server whenever it dies, with the same data and address, so that the workers
        only see an outage. A server that keeps dying ends the deployment with the reason."""
        policy = RestartPolicy(self.settings.supervisor)
        while True:
            code = await server.wait()
            if self._phase == "stopping":
                return
            pause = policy.died(time.monotonic())
            log.error("redis died", code=code, again_in=None if pause is None else round(pause, 2))
            if pause is None:
                raise UserError(
                    f"Redis died {len(policy.deaths)} times within"
                    f" {self.settings.supervisor.crash_loop_seconds:g} s (last code {code})",
                    hint=f"its log says why: {server.log_file}",
                )
            await asyncio.sleep(pause)
            try:
                await server.start()
            except (UserError, OSError) as error:
                # A failed start counts as another death: the next `wait` returns immediately.
                log.error("redis did not start", error=str(error))
                continue
            self.redis_restarts += 1
            log.info("redis ready again", pid=server.pid, seconds=round(server.started_in, 3))

    async def _keep_sockets(self, control: ControlServer) -> None:
        """Restore a socket whose file was deleted: new clients can't connect any more, while
        connected clients notice nothing. Redis needs a restart for this."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(OSError):  # if the folder refuses it: retried
                if await control.reopen_if_deleted():
                    log.warning("control socket made again: its file was deleted")
            server = self.redis
            if server is not None and server.socket_lost and not server.data_lost:
                log.error("redis stopped: the file of its socket was deleted", pid=server.pid)
                await server.stop()  # then `_keep_redis` restarts it

    async def _rotate_logs(self) -> None:
        """Rotate the logs that no pump writes: this process's own log and that of Redis."""
        settings = self.settings.supervisor
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(OSError):  # on a full disk: retried
                rotate_output(self.state.supervisor_log, settings.log_bytes, settings.log_files)
            if self.redis is not None:
                with contextlib.suppress(OSError):
                    rotate(self.redis.log_file, settings.log_bytes, settings.log_files)

    # -- workers ------------------------------------------------------------------------------

    def _scale(self, kind: str, count: int) -> list[WorkerSlot]:
        """Start missing workers; return the slots above `count`, which the caller stops."""
        slots = self._slots[kind]
        used_indices = {slot.index for slot in self._running if slot.kind == kind}
        free = (index for index in itertools.count(1) if index not in used_indices)
        while len(slots) < count:
            slot = WorkerSlot(kind, next(free), self._launch)
            slots.append(slot)
            task = asyncio.create_task(slot.run(), name=f"{kind}-{slot.index}")
            self._running[slot] = task
            task.add_done_callback(lambda task, slot=slot: self._on_slot_done(slot, task))
        surplus = slots[count:]
        del slots[count:]
        return surplus

    def _on_slot_done(self, slot: WorkerSlot, task: asyncio.Task[None]) -> None:
        self._running.pop(slot, None)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # Otherwise a slot would stay empty in a deployment that reports ready.
            slot.kill_process()
            self._background.fail(f"slot {slot.kind}-{slot.index}", error)

    async def _watch_presence(self, presence: Presence) -> None:
        """Poll the presence of workers, which makes them ready; more often while one is
        starting."""
        self._heard = time.monotonic()
        while True:
            try:
                present = await presence()
            except Exception as error:  # noqa: BLE001 - whatever Redis says is an outage
                log.debug("presence unknown", error=str(error))
                self._unheard = str(error)
            else:
                self._heard, self._unheard = time.monotonic(), ""
                for slot in self._running:
                    worker = present.get(slot.name)
                    self._record_presence(slot, None if worker is None else worker.state)
                self._targets.write(present.values())
            hurry = any(slot.state == "starting" for slot in self._running)
            await asyncio.sleep(0.1 if hurry else LOOK_SECONDS)

    def _record_presence(self, slot: WorkerSlot, state: str | None) -> None:
        """Record the presence of a slot's worker on the bus; None means absent."""
        if state is None:
            if slot.state == "ready":
                slot.enter("silent", "its heartbeat has stopped")
                log.warning("worker silent", worker=slot.name)
        elif state in ("starting", "downloading"):
            if slot.state in ("starting", "downloading"):
                slot.enter(state)
        elif slot.state in ("starting", "downloading", "silent"):
            slot.enter("ready")
            log.info("worker ready", worker=slot.name)
            self._changed.set()

    async def _announce(self, on_ready: Callable[[], None] | None) -> None:
        limit = self.settings.ready_seconds
        until = time.monotonic() + limit
        while late := [slot for slot in self._running if not slot.settled]:
            if any(slot.state == "downloading" for slot in late):
                # A download has no time limit.
                until = time.monotonic() + limit
            if time.monotonic() > until:
                names = [slot.name for slot in late]
                log.warning("not ready in time", seconds=limit, workers=names)
                break
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._changed.wait()
        self._phase = "ready"
        gateway = {"gateway": self._listener.url} if self._listener else {}
        log.info("up", phase=self.phase, seconds=round(time.time() - self._started, 2), **gateway)
        if on_ready is not None:
            on_ready()

    # -- control ------------------------------------------------------------------------------

    async def _control(self, message: dict[str, Any]) -> dict[str, Any]:
        match message.get("do"):
            case "status":
                return self.status()
            case "scale":
                return await self._control_scale(message)
            case "down":
                self._on_drain(signal.SIGTERM)
                return {"phase": "draining"}
            case other:
                raise UserError(f"the supervisor doesn't know the command {other!r}")

    async def _control_scale(self, message: dict[str, Any]) -> dict[str, Any]:
        kind, count = message.get("kind"), message.get("count")
        if not isinstance(kind, str) or kind not in self._slots:
            nearest = difflib.get_close_matches(str(kind), list(self._slots), n=1)
            suggestion = f"did you mean {nearest[0]!r}? " if nearest else ""
            raise UserError(
                f"there is no worker kind {kind!r} in this deployment",
                hint=f"{suggestion}Kinds: {', '.join(self._slots)}",
            )
        if not isinstance(count, int) or not 0 <= count <= MAX_WORKERS:
            raise UserError(f"count must be 0 to {MAX_WORKERS}, not {count!r}")
        if self._stop.is_set():
            raise UserError("the deployment is draining", hint="start it again with `runtime up`.")
        before = len(self._slots[kind])
        # New workers replace broken ones: the request is another attempt.
        broken = [slot for slot in self._slots[kind] if slot.state == "broken"]
        self._slots[kind] = [slot for slot in self._slots[kind] if slot not in broken]
        surplus = broken + self._scale(kind, count)
        for slot in surplus:
            self._background.start(slot.stop(), name=f"stop of {slot.name}", may_end=True)
        log.info("scaled", kind=kind, before=before, after=count)
        return {"kind": kind, "before": before, "after": count}

    @property
    def phase(self) -> str:
        """State: `starting`, `ready`, `degraded` (a worker is broken, dead or silent, no worker of
        a kind is ready, or the bus does not answer), `draining` or `stopping`."""
        if self._phase != "ready":
            return self._phase
        ailing = any(slot.state in ("broken", "silent", "backoff") for slot in self._running)
        late = ("starting", "downloading")
        serving = {slot.kind for slot in self._running if slot.state not in late}
        absent = {slot.kind for slot in self._running} - serving
        return "degraded" if ailing or absent or self._bus_problem() else "ready"

    def _bus_problem(self) -> str:
        """Describe what is wrong with the bus."""
        if self.redis is not None and self.redis.socket_lost and self.redis.data_lost:
            return (
                f"the data folder {self.state.redis} was deleted: the server's data is only in its"
                " memory, and no client can connect to it"
            )
        silent = time.monotonic() - self._heard
        if silent < SILENCE_SECONDS:
            return ""
        return f"it has not answered the supervisor for {silent:.0f} s {self._unheard}".rstrip()

    def _gateway_status(self) -> dict[str, str] | None:
        if self._listener is None:
            return None
        return {"url": self._listener.url, "key_file": str(self.state.gateway_key)}

    def status(self) -> dict[str, Any]:
        """Return this supervisor's status as plain JSON."""
        server = self.redis
        return {
            "pid": os.getpid(),
            "phase": self.phase,
            "profile": self.profile,
            "version": __version__,
            "started": self._started,
            "gateway": self._gateway_status(),
            "redis": {
                "url": self.settings.bus.safe_url,
                "own": server is not None,
                "server": None if server is None else str(server.binary),
                "pid": None if server is None else server.pid,
                "durability": self._durability,
                "restarts": self.redis_restarts,
                "trouble": self._bus_problem(),
            },
            "workers": [
                {
                    "name": slot.name,
                    "kind": slot.kind,
                    "index": slot.index,
                    "state": slot.state,
                    "pid": None if slot.process is None else slot.process.pid,
                    "restarts": slot.restarts,
                    "since": slot.since,
                    "reason": slot.reason,
                    "last_lines": slot.last_lines if slot.state == "broken" else [],
                }
                for slot in sorted(self._running, key=lambda slot: (slot.kind, slot.index))
            ],
        }

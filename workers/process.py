"""The life cycle of a worker process: join the bus, serve, announce its presence, drain on SIGTERM.

SIGTERM, SIGHUP and SIGINT drain: the worker takes nothing new and renews its leases until the
deliveries in progress are done. SIGQUIT or a second SIGINT abandons them: they go back to the bus,
and other workers take them over. See `loopline.workers.stop_signals`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from loopline.agents.tools.threads import run_in_own_thread
from loopline.build import describe
from loopline.bus import (
    Agreement,
    Bus,
    Consumer,
    Delivery,
    Inbox,
    LogConsumer,
    Retry,
    WorkerPresence,
    announce,
    policies,
)
from loopline.bus.attempt import Handler
from loopline.bus.connection import pause_before, retry_during_outage
from loopline.bus.tasks import end
from loopline.workers.endpoints import share_endpoint
from loopline.workers.engines import build_engine
from loopline.workers.engines.protocol import EngineBroken, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gc_tuning import collect_rarely, freeze_startup_objects
from loopline.workers.gpu import Pool
from loopline.workers.messages import (
    BREAKERS,
    JUDGE_STREAM,
    METRICS_ADDRESS,
    OFFERED_TOOLS,
    TOOL_STREAM,
    inference_stream,
    registry,
    role_stream,
)
from loopline.workers.settings import (
    GpuWorkerSettings,
    JudgeWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerSettings,
)
from loopline.workers.stop_signals import stop_signals

if TYPE_CHECKING:
    from loopline.workers.metrics import ProcessMetrics

log = structlog.get_logger("loopline.workers.process")


class Server(Protocol):
    """A task of a worker: a consumer of deliveries, or a reader of a log."""

    async def run(self) -> None: ...

    def drain(self) -> None: ...


class Front(Protocol):
    """Serves clients that don't use the bus, in the same process as the roles of their runs."""

    @property
    def kind(self) -> str:
        """Kind of worker that `runtime status` shows."""
        ...

    def server(self, bus: Bus, inbox: Inbox, consumers: Sequence[Consumer]) -> Server:
        """Serve the clients, and run the consumers as long as it serves, those of steps before
        those of requests. Raises OSError if it can't listen."""
        ...

    def details(self) -> dict[str, Any]:
        """Details for the worker's presence."""
        ...


class Worker:
    """One worker of any kind, created from its settings."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        join_seconds: float = 0.0,
        claims: Mapping[str, str] | None = None,
        require: Callable[[Agreement], None] | None = None,
        front: Front | None = None,
    ) -> None:
        """`join_seconds`: how long `run` waits for Redis to answer. `claims`: deployment settings
        that apply if nobody has set them; `require` checks the resulting settings, and `run` raises
        what it raises. `front` serves clients in addition to the roles of a role worker."""
        self._front = front
        self._require = require
        self.settings = settings
        self.name = settings.name or f"{settings.kind}-{os.getpid()}"
        self._bus = Bus(
            settings.bus,
            registry(),
            join_seconds=join_seconds,
            standing="worker",
            claims=claims,
        )
        self._state = "starting"
        self._broken: EngineBroken | None = None
        self._servers: list[Server] = []
        self._streams: list[str] = []
        self._details: Callable[[], dict[str, Any]] = dict
        self._news = asyncio.Event()
        self._kind = front.kind if front else settings.kind
        self._consumers: list[Consumer] = []
        self._metrics: ProcessMetrics | None = None
        self._presence = WorkerPresence(
            name=self.name, kind=self._kind, version=version("loopline"), build=describe()
        )

    async def run(self) -> None:
        """Serve until drained.

        Raises `BusUnavailable` if the bus can't be joined at the start; `DeploymentMismatch` if its
        settings differ from the deployment's; `DeploymentChanged` after draining if those were
        changed (start a new worker, which reads them); `EngineError` if a model can't be loaded;
        `EngineBroken` after draining if one can't continue; `BackgroundEnded` if a part ends that
        this worker can't do without, since a stopped worker is better than one that only claims to
        be ready.
        """
        collect_rarely()
        stop = asyncio.Event()
        serving = asyncio.create_task(self._bus.background.run(self._serve(stop)), name="serve")

        def drain(number: signal.Signals) -> None:
            log.info("draining", worker=self.name, signal=number.name)
            stop.set()

        def abandon(number: signal.Signals) -> None:
            log.warning("unfinished work left to others", worker=self.name, signal=number.name)
            serving.cancel()

        with stop_signals(drain, abandon):
            try:
                await serving
            except asyncio.CancelledError:
                log.warning("stopped with unfinished work", worker=self.name)

    async def _serve(self, stop: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            if not await self._join(stack, stop):
                return
            if self._require is not None:
                self._require(self._bus.agreement)
            self._serve_metrics(stack)
            background = self._bus.background
            beating = background.start(
                announce(self._bus, self._describe, self._news), name="presence"
            )
            stack.push_async_callback(background.stop, [beating])
            await self._build(stack)
            freeze_startup_objects()
            self._state = "ready"
            self._news.set()
            log.info("ready", worker=self.name, kind=self._kind, streams=self._streams)
            tasks = [asyncio.create_task(server.run()) for server in self._servers]
            draining = [
                background.start(self._drain_when_stopped(event), name=name, may_end=True)
                for name, event in (("draining", stop), ("joining again", self._bus.on_change))
            ]
            stack.push_async_callback(background.stop, draining)
            try:
                await asyncio.gather(*tasks)
            finally:
                await end(tasks)
        if self._broken is not None:
            raise self._broken
        if self._bus.changed is not None and not stop.is_set():
            raise self._bus.changed
        log.info("stopped", worker=self.name)

    def _serve_metrics(self, stack: AsyncExitStack) -> None:
        """Serve metrics if they are enabled; otherwise the modules that count are not even
        imported."""
        if not self.settings.metrics.enabled:
            return
        from loopline.workers.metrics import ProcessMetrics

        self._metrics = metrics = ProcessMetrics(
            self.settings.metrics, kind=self._kind, version=self._presence.version
        )
        metrics.serve()
        stack.callback(metrics.close)
        self._bus.observer = metrics

    async def _join(self, stack: AsyncExitStack, stop: asyncio.Event) -> bool:
        """Join the bus; returns whether that succeeded before `stop` was set."""
        joining = asyncio.create_task(stack.enter_async_context(self._bus), name="join")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait({joining, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not joining.done():
                log.info("stopped before Redis answered")
                return False
            await joining
            return True
        finally:
            await end([joining, stopping])

    async def _drain_when_stopped(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._drain()

    def _drain(self) -> None:
        self._state = "draining"
        self._news.set()
        for server in self._servers:
            server.drain()

    async def _build(self, stack: AsyncExitStack) -> None:
        match self.settings:
            case RoleWorkerSettings():
                await self._build_role(self.settings, stack)
            case GpuWorkerSettings():
                await self._build_gpu(self.settings, stack)
            case ToolWorkerSettings():
                await self._build_tool(self.settings, stack)
            case JudgeWorkerSettings():
                await self._build_judge(self.settings, stack)
            case RecorderSettings():
                await self._build_recorder(self.settings, stack)

    async def _build_role(self, settings: RoleWorkerSettings, stack: AsyncExitStack) -> None:
        from loopline.agents.roles import roles
        from loopline.workers.role import RoleHandler
        from loopline.workers.schedules import ScheduleServer

        for role in settings.roles:
            roles.get(role)  # fail for an unknown role now, not at the first message
        inbox = await stack.enter_async_context(Inbox(self._bus))
        handler = RoleHandler(inbox, self.name, self._presence.build)
        streams = [role_stream(role) for role in settings.roles]
        self._consume(streams, handler.handle, settings.concurrency)
        await self._build_pools(settings.models, stack)
        if self._front is not None:
            self._details = self._front.details
            self._servers = [self._front.server(self._bus, inbox, self._consumers)]
        self._servers.append(ScheduleServer(self._bus))

    async def _build_tool(self, settings: ToolWorkerSettings, stack: AsyncExitStack) -> None:
        from loopline.workers.tool import tool_handler
        from loopline.workers.tracing.tool_spans import trace_calls

        watch = await stack.enter_async_context(trace_calls(self._bus, settings, self.name))
        if not settings.sources:
            self._consume([TOOL_STREAM], tool_handler(watch=watch), settings.concurrency)
            return
        from loopline.workers.tool_sources.sources import tool_sources

        sources = await stack.enter_async_context(
            tool_sources(settings.sources, background=self._bus.background)
        )
        self._details = lambda: {
            "sources": sources.state(),
            OFFERED_TOOLS: [spec.model_dump(mode="json") for spec in sources.specs],
        }
        self._consume([TOOL_STREAM], tool_handler(sources, watch), settings.concurrency)

    async def _build_judge(self, settings: JudgeWorkerSettings, stack: AsyncExitStack) -> None:
        from loopline.workers.judging.problems import ProblemFolder
        from loopline.workers.judging.service import judge_service

        folder = ProblemFolder(settings.problems)
        service = await stack.enter_async_context(judge_service(folder, settings.sandbox))
        self._details = lambda: {"refuses": service.refuses}
        self._consume([JUDGE_STREAM], service.handle, settings.concurrency)

    async def _build_gpu(self, settings: GpuWorkerSettings, stack: AsyncExitStack) -> None:
        pools = await self._build_pools(settings.models, stack)

        def details() -> dict[str, Any]:
            return {
                "models": {pool.name: pool.engine.base for pool in pools},
                "totals": {pool.name: vars(pool.engine.totals()) for pool in pools},
                "policies": {k: v for pool in pools for k, v in pool.policies.state().items()},
                BREAKERS: {pool.name: state for pool in pools if (state := pool.breaker.state())},
            }

        self._details = details

    async def _build_pools(
        self, models: Mapping[str, ModelSettings], stack: AsyncExitStack
    ) -> list[Pool]:
        """Load models, and consume their requests."""
        pools: list[Pool] = []
        for name, model in models.items():
            others = {*model.fallbacks, *filter(None, (model.hedge_with,))}
            if missing := others - {*models} | ({name} & others):
                raise EngineError(
                    f"pool {name!r}: fallbacks or hedge_with lists {', '.join(sorted(missing))},"
                    " but each must be another pool of this worker: add it to `models`",
                    kind="bad_request",
                )
            engine = build_engine(model)
            log.info("loading", pool=name, engine=model.engine, model=engine.base)
            try:
                await self._fetch(model)
                await engine.start()
            except EngineError as error:
                message = f"pool {name!r}: {error}"
                raise EngineError(message, kind=error.kind, retryable=error.retryable) from error
            stack.push_async_callback(engine.close)
            pool = Pool(name, model, engine, self.name)
            share_endpoint(pool, self._bus)
            pools.append(pool)
            if self._metrics is not None:
                self._metrics.engines.add(pool)
            await self._follow_policies(pool, stack)
            self._consume([inference_stream(name)], self._handler(pool), model.max_concurrency)
        by_name = {pool.name: pool for pool in pools}
        for pool in pools:
            pool.fallbacks = [by_name[name] for name in pool.settings.fallbacks]
            pool.hedge_with = by_name.get(pool.settings.hedge_with, pool)
        return pools

    async def _fetch(self, model: ModelSettings) -> None:
        """Download the model from the hub first, if necessary, and report that state: a download
        takes as long as the network needs, while loading should finish within a time limit."""
        if model.engine not in ("torch", "llama_cpp"):
            return
        from loopline.workers.engines.local.model_files import fetch, is_on_hub

        if is_on_hub(model):
            self._state = "downloading"
            self._news.set()
            await run_in_own_thread(fetch, model)
            self._state = "starting"
            self._news.set()

    def _handler(self, pool: Pool) -> Handler:
        """The pool's own handler, until its engine breaks. Then its requests go back to the bus,
        the other pools finish their deliveries, and the worker exits, since only a new process
        helps."""

        async def handle(delivery: Delivery) -> None:
            try:
                await pool.handle(delivery)
            except EngineBroken as error:
                if self._broken is None:
                    self._broken = error
                    log.error(
                        "engine broken, worker exits",
                        worker=self.name, pool=pool.name, why=str(error),
                    )  # fmt: skip
                    self._drain()
                raise Retry(str(error)) from error

        return handle

    async def _follow_policies(self, pool: Pool, stack: AsyncExitStack) -> None:
        """Serve the published versions before the first request, and follow later changes."""
        for name, path in pool.settings.adapters.items():
            publish = partial(policies.publish_first, self._bus, f"{pool.name}/{name}", path)
            await retry_during_outage("policy", publish)
        async with aclosing(policies.follow(self._bus)) as changes:
            await pool.policies.apply(await anext(changes))

        async def keep_following() -> None:
            failures = 0
            while True:
                try:
                    # Starts with all published versions, so that none in between is missed.
                    async with aclosing(policies.follow(self._bus)) as changes:
                        async for policy in changes:
                            await pool.policies.apply(policy)
                            self._news.set()
                            failures = 0
                except Exception:  # an adapter that can't be loaded is not a reason to exit
                    failures += 1
                    log.exception(
                        "policies can't be followed: loaded versions keep serving", pool=pool.name
                    )
                    await asyncio.sleep(pause_before(failures))

        task = self._bus.background.start(keep_following(), name=f"policies-{pool.name}")
        stack.push_async_callback(self._bus.background.stop, [task])

    async def _build_recorder(self, settings: RecorderSettings, stack: AsyncExitStack) -> None:
        from loopline.workers.canaries.decider import CanaryDecider
        from loopline.workers.recorder import (
            REWARD_SCHEMA,
            TRAJECTORY_SCHEMA,
            USAGE_SCHEMA,
            Table,
            reward_row,
            trajectory_row,
            usage_row,
        )
        from loopline.workers.router_watch import RouterWatch
        from loopline.workers.store.prompts import PromptShelf
        from loopline.workers.tracing.exporter import trace_readers

        store = Path(settings.store)
        shelf = PromptShelf(self._bus, store)
        metrics = self._metrics
        counts = None if metrics is None else metrics.store_metrics(settings.priced_pools)
        on_rows = {"trajectories": counts.runs, "usage": counts.usage} if counts else {}
        tables: list[Table] = []
        for shard in self._bus.keys.all_shards():
            for key, folder, schema, row_of in (
                (shard.trajectories, "trajectories", TRAJECTORY_SCHEMA, trajectory_row),
                (shard.ledger, "usage", USAGE_SCHEMA, usage_row),
                (shard.rewards, "rewards", REWARD_SCHEMA, reward_row),
            ):
                table = Table(store / folder, shard.index, schema, row_of, on_rows.get(folder))
                tables.append(table)
                self._streams.append(key)
                write = shelf.before(table.write) if folder == "trajectories" else table.write
                self._servers.append(
                    LogConsumer(self._bus, key, "recorder", write, linger=settings.linger_seconds)
                )
        traces = await stack.enter_async_context(trace_readers(self._bus, settings))
        self._servers += traces.readers
        compactor = None
        if settings.compact_files:
            from loopline.workers.store.compactor import Compactor

            compactor = Compactor(store, settings.compact_files, settings.compact_seconds)
            self._servers.append(compactor)
        decider = CanaryDecider(self._bus, store, self.name, settings.canary_seconds)
        routers = RouterWatch(store, self._bus.clock.now(), settings.canary_seconds)
        self._servers += [decider, routers]
        self._details = lambda: {
            "rows": sum(table.rows for table in tables),
            "files_compacted": compactor.done.files if compactor else 0,
            "canaries": decider.details(),
            "routers": routers.details(),
            **traces.details(),
        }

    def _consume(self, streams: list[str], handler: Handler, places: int) -> Consumer:
        self._streams += streams
        consumer = Consumer(
            self._bus,
            streams,
            handler,
            concurrency=places,
            worker=self.name,
            ends_runs=isinstance(self.settings, RoleWorkerSettings),
            local=self._front is not None,
            eager=self._front is not None,
        )
        self._consumers.append(consumer)
        self._servers.append(consumer)
        return consumer

    def _describe(self) -> WorkerPresence:
        consumers = self._consumers
        metrics = {} if self._metrics is None else {METRICS_ADDRESS: self._metrics.address}
        return self._presence.model_copy(
            update={
                "state": self._state,
                "busy": sum(consumer.busy for consumer in consumers),
                "concurrency": sum(consumer.busy + consumer.free for consumer in consumers),
                "streams": self._streams,
                "details": self._details() | metrics,
            }
        )

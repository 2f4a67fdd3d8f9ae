"""A worker's loop over its work streams: read, lease, attempt, survive outages.

It guarantees that each delivery's lease is renewed while the handler runs, and that the handler is
cancelled when the lease is lost or the run has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
import uuid
from collections.abc import Sequence
from typing import Any

import structlog
from pydantic import BaseModel

from loopline.bus import scripts, tasks
from loopline.bus.attempt import Handler, attempt, earlier_failures
from loopline.bus.bus import Bus
from loopline.bus.connection import OUTAGE, pause_before, retry_during_outage
from loopline.bus.dead_letters import add_dead_letter
from loopline.bus.delivery import Delivery
from loopline.bus.eager_start import UNKNOWN_ENTRY, EagerDelivery, EagerStart
from loopline.bus.envelope import FIELD, Envelope
from loopline.bus.errors import BusError, MessageTooLarge, OtherVersion
from loopline.bus.keys import GROUP, Shard
from loopline.bus.lease import Lease, Verdict
from loopline.bus.recovery import Sweeper
from loopline.bus.run_state import RunState
from loopline.bus.trace_context import trace_id_of
from loopline.bus.unfinished import give_back, hand_back, return_uncounted

log = structlog.get_logger("loopline.bus.consumer")

SIZE_SLACK = 1024
"""Spare bytes for a retry: its attempt number may have more digits than when its size was
checked."""

LEAST_BLOCK_SECONDS = 0.05
"""Shortest blocking read, even if many shards take turns: Redis treats 0 as no limit."""

RELEASE_SECONDS = 2.0
"""Maximum time for releasing abandoned work in Redis."""


class Consumer:
    """Serves one or more work streams on every shard, up to `concurrency` deliveries at once."""

    def __init__(
        self,
        bus: Bus,
        streams: Sequence[str],
        handler: Handler,
        *,
        concurrency: int = 16,
        worker: str = "worker",
        ends_runs: bool = True,
        local: bool = False,
        eager: bool = False,
    ) -> None:
        """`ends_runs`: whether the consumer may end overdue runs, which requires permission to read
        their journals. `local`: the consumer's process also publishes to its streams, and reads for
        it while publishing (`loopline.bus.local_delivery`). `eager`: the handler may start before a
        run's admission (`loopline.bus.eager_start`) because it does nothing visible to others
        before it marks, replies or commits."""
        self.bus = bus
        self.streams = tuple(streams)
        self.name = f"{worker}-{uuid.uuid4().hex[:8]}"
        self.ends_runs = ends_runs
        self._local = local
        self._eager = eager
        self._handler = handler
        self._concurrency = concurrency
        self._running: dict[asyncio.Task[None], tuple[Shard, str, Lease]] = {}
        self._asked = 0
        """Slots that readers have asked Redis to fill."""
        self._kept = 0
        """Slots that readers leave to the next sweep."""
        self._known_work = 0
        """Readers waiting for a slot whose shard had work when they last checked."""
        self._turn = asyncio.Lock()
        """Lock that readers get in order of arrival: no shard is skipped."""
        self._room = asyncio.Event()
        self._room.set()
        self._draining = asyncio.Event()
        self._places = asyncio.Semaphore(concurrency)

    @property
    def busy(self) -> int:
        """Number of deliveries in hand."""
        return len(self._running)

    @property
    def free(self) -> int:
        return max(0, self._concurrency - len(self._running))

    @property
    def _spare_places(self) -> int:
        """Slots that a reader may ask Redis to fill; negative if too many were asked for."""
        return self.free - self._asked - self._kept

    def holding(self, key: str) -> list[tuple[str, int]]:
        """Entry and delivery count of each delivery in hand from a work stream."""
        leases = [lease for _, _, lease in self._running.values()]
        return [(lease.entry, lease.count) for lease in leases if lease.stream == key]

    def keep(self, places: int) -> None:
        """Leave this many slots to the next sweep, instead of reading new work into them."""
        self._kept = min(places, self._concurrency)
        if self._spare_places > 0:
            self._room.set()

    async def run(self) -> None:
        """Serve until `drain` is called; then finish the deliveries in hand and return. Raises what
        stops a reader or the sweeper; a Redis outage never stops them."""
        if self._local:
            self.bus.local.serve(self.streams, self)
        background = tasks.Background()
        try:
            for shard in self.bus.keys.all_shards():
                await self.ensure_groups(shard)
            background.start(Sweeper(self).run(), name=f"sweeper of {', '.join(self.streams)}")
            await background.run(self._serve_all(background))
        finally:
            self.bus.local.stop_serving(self)
            await background.end()
            remaining = list(self._running.values())
            await tasks.end(self._running)
            if remaining:
                await tasks.finish(self._release_abandoned(remaining))
        await self._leave()

    async def _serve_all(self, background: tasks.Background) -> None:
        readers = [
            asyncio.create_task(self._read(shard), name=f"read-{shard.index}")
            for shard in self.bus.keys.all_shards()
        ]
        try:
            await asyncio.gather(*readers)
        finally:
            await tasks.end(readers)
        if self._running:
            # The supervisor that stops a worker may lose patience, and SIGKILL leaves no time to
            # report: from here on, the worker's death is not counted against the deliveries in
            # hand.
            not_failed = retry_during_outage(
                "mark as not failed",
                lambda: give_back(self.bus, self.name, self._running.values(), release=False),
            )
            background.start(not_failed, name="mark as not failed", may_end=True)
        while self._running:
            await asyncio.wait(set(self._running))

    async def _release_abandoned(self, leases: Sequence[tuple[Shard, str, Lease]]) -> None:
        """Release abandoned work, so that another worker gets it at once; if Redis is unreachable,
        another worker gets it when the lease expires."""
        with contextlib.suppress(TimeoutError, *OUTAGE):
            async with asyncio.timeout(RELEASE_SECONDS):
                await give_back(self.bus, self.name, leases, release=True)

    def drain(self) -> None:
        """Accept no new deliveries. Leases of deliveries in hand are renewed until they are
        done."""
        self._draining.set()
        self._room.set()

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    async def ensure_groups(self, shard: Shard) -> None:
        """Create streams and groups, from 0 to include entries from before the first worker."""
        for name in self.streams:
            await retry_during_outage(
                "group create", lambda n=name: self._create_group(shard.work(n))
            )

    async def _create_group(self, key: str) -> None:
        await scripts.call(self.bus.redis, "group", [key], [GROUP])

    async def _leave(self) -> None:
        for shard in self.bus.keys.all_shards():
            for stream in self.streams:
                with contextlib.suppress(*OUTAGE):  # another worker's reaper does this later
                    await scripts.call(
                        self.bus.redis, "reap", [shard.work(stream)], [GROUP, 0, self.name]
                    )

    async def _read(self, shard: Shard) -> None:
        names = {shard.work(name).encode(): name for name in self.streams}
        wanted: dict[Any, Any] = dict.fromkeys(names, ">")
        failures, more = 0, True
        while count := await self._reserve_places(more):
            try:
                streams = await self._fetch(wanted, count, self._block_ms(more))
            except OUTAGE as error:
                failures += 1
                if failures & (failures - 1) == 0:
                    log.warning("read failed", error=str(error), tries=failures)
                if "NOGROUP" in str(error):
                    await self.ensure_groups(shard)
                else:
                    await asyncio.sleep(pause_before(failures))
                continue
            if failures:
                log.info("read works again", tries=failures)
                failures = 0
            for key, entries in streams:
                for entry, fields in entries:
                    self.take(shard, names[key], entry.decode(), fields.get(FIELD.encode(), b""), 1)
            more = bool(streams)

    async def _reserve_places(self, more: bool) -> int:
        """Wait for a slot; return the deliveries of each stream to read now, 0 when drained.

        Every requested delivery has a reserved slot: a delivery that waited here for a slot could
        be handled by another worker. If there are several shards, a reader takes all slots only
        when it will not block (`more`); otherwise it takes one, so that the other readers can wait
        at the same time.
        """
        self._known_work += more
        try:
            async with self._turn:
                while not self.draining:
                    spare = self._spare_places
                    if spare > 0:
                        take_all = more or self.bus.keys.shards == 1
                        if self._local:
                            spare = (spare + 1) // 2  # the rest is for `reserve`
                        count = max(1, spare // len(self.streams)) if take_all else 1
                        self._asked += count * len(self.streams)
                        return count
                    self._room.clear()
                    await self._room.wait()
            return 0
        finally:
            self._known_work -= more

    async def _fetch(self, wanted: dict[Any, Any], count: int, block: int | None) -> list[Any]:
        """Read entries by stream. Afterwards the entries are in hand, and slots without an entry
        are free again: nothing may be awaited in between."""
        try:
            streams = await self.bus.blocking.xreadgroup(
                GROUP, self.name, wanted, count=count, block=block
            )
            return streams or []
        finally:
            self._asked -= count * len(wanted)
            if self._spare_places > 0:
                self._room.set()

    def _block_ms(self, more: bool) -> int | None:
        """Duration of the next blocking read, in ms; None means no blocking. If there are not
        enough slots for all shards at once, shards take turns within `block_seconds`, and no shard
        holds a slot waiting while another shard has work for it."""
        shards = self.bus.keys.shards
        if shards > 1 and (more or self._known_work):
            return None
        at_once = min(shards, max(1, self.free // len(self.streams)))
        seconds = self.bus.settings.block_seconds * at_once / shards
        return int(1000 * max(LEAST_BLOCK_SECONDS, seconds))

    def reserve(self) -> bool:
        """Reserve a slot for a delivery that this process reads as it publishes; False if none is
        free."""
        if self.draining or self._spare_places <= 0:
            return False
        self._asked += 1
        return True

    def release(self) -> None:
        """Free a slot that `reserve` took."""
        self._asked -= 1
        if self._spare_places > 0:
            self._room.set()

    def take(
        self,
        shard: Shard,
        stream: str,
        entry: str,
        body: bytes,
        count: int,
        state: RunState | None = None,
    ) -> None:
        """Start handling a delivery that this consumer now holds; `state` as in
        `Delivery.state`."""
        lease = Lease(shard.work(stream), entry, self.name, count)
        task = asyncio.create_task(self._serve(shard, stream, lease, body, state))
        self._running[task] = (shard, stream, lease)
        task.add_done_callback(self._on_task_done)

    def begin(
        self,
        shard: Shard,
        stream: str,
        envelope: Envelope,
        body: bytes,
        state: RunState,
        start: EagerStart,
        record: BaseModel | None = None,
    ) -> EagerDelivery | None:
        """Start handling a message that reaches its stream with the run's admission, or not at all;
        None if it must not start before. `record`: its payload, if the payload came from this
        process. Raises what `Registry.decode` raises."""
        if not self._eager:
            return None
        payload = self.bus.registry.decode(envelope) if record is None else record
        eager = EagerDelivery(start, self, stream, body)
        lease = Lease(shard.work(stream), UNKNOWN_ENTRY, self.name, 1)
        delivery = Delivery(self.bus, shard, stream, lease, envelope, payload, state, eager)
        task = asyncio.create_task(self._serve_delivery(delivery, body))
        self._running[task] = (shard, stream, lease)
        task.add_done_callback(self._on_task_done)
        eager.task = task

        def on_held(entry: str) -> None:
            delivery.lease = Lease(lease.stream, entry, lease.consumer, lease.count, lease.group)
            self._running[task] = (shard, stream, delivery.lease)

        eager.on_held.append(on_held)
        return eager

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if self._spare_places > 0:
            self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "delivery abandoned until its lease expires",
                error=str(error),
                kind=type(error).__name__,
            )

    async def _serve(
        self, shard: Shard, stream: str, lease: Lease, body: bytes, state: RunState | None
    ) -> None:
        try:
            if len(body) > self.bus.settings.max_message_bytes + SIZE_SLACK:
                raise MessageTooLarge(
                    f"{len(body)} bytes; the limit is {self.bus.settings.max_message_bytes} "
                    "(max_message_bytes)"
                )
            envelope = Envelope.from_json(body)
            try:
                payload = self.bus.registry.decode(envelope)
            except OtherVersion as error:
                await hand_back(self.bus, shard, stream, lease, envelope, body, str(error))
                return
        except Exception as error:  # noqa: BLE001 - an upcaster or validator may raise anything
            # It would fail at every delivery, before any count of attempts is checked.
            await add_dead_letter(
                self.bus, shard, stream, lease, body, f"{type(error).__name__}: {error}",
                trace="" if isinstance(error, BusError) else traceback.format_exc(),
            )  # fmt: skip
            return
        if envelope.run_id and self.bus.keys.shard_of(envelope.run_id) != shard:
            # The number of shards has changed since this process joined, which it will learn in a
            # moment. A process that already knows takes the message once this lease has expired.
            log.warning(
                "message left to other workers",
                why="the number of shards has changed",
                run_id=envelope.run_id,
            )
            return
        delivery = Delivery(self.bus, shard, stream, lease, envelope, payload, state)
        await self._serve_delivery(delivery, body)

    async def _serve_delivery(self, delivery: Delivery, body: bytes) -> None:
        shard, stream, envelope = delivery.shard, delivery.stream, delivery.envelope
        verdicts: list[Verdict] = []
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def abandon(verdict: Verdict) -> None:
            if not delivery.settling:
                verdicts.append(verdict)
                task.cancel()

        def on_verdict(verdict: Verdict) -> None:
            loop.call_soon_threadsafe(abandon, verdict)

        def hold(entry: str) -> None:
            self.bus.keeper.hold(delivery.lease, shard.run(envelope.run_id), on_verdict)

        if delivery.eager is None or delivery.eager.entry is not None:
            hold(delivery.lease.entry)
        else:
            delivery.eager.on_held.append(hold)
        try:
            async with self._places:
                # Never unbound: the context belongs to this task and goes away with it.
                structlog.contextvars.bind_contextvars(
                    run_id=envelope.run_id,
                    trace_id=trace_id_of(envelope.run_id, envelope.traceparent),
                )
                failures = await earlier_failures(delivery)
                if failures is None:
                    self.bus.observer.lease_lost(stream)
                    log.warning("lease lost before the handler started", run_id=envelope.run_id)
                elif failures >= self.bus.settings.max_attempts:
                    await add_dead_letter(
                        self.bus, shard, stream, delivery.lease, body,
                        f"attempts without a result: {failures}; the handler crashes its "
                        "worker, or never returns",
                    )  # fmt: skip
                else:
                    await attempt(delivery, self._handler, body, failures)
        except asyncio.CancelledError:
            if not verdicts:
                raise  # shutdown: the message stays on the bus for another worker
            task.uncancel()
            log.info("work abandoned", why=verdicts[0].name, run_id=envelope.run_id)
            if verdicts[0] is Verdict.RUN_ENDED:
                await delivery.drop()
            else:
                self.bus.observer.lease_lost(stream)
                await return_uncounted(delivery)
        finally:
            if delivery.eager is not None:
                delivery.eager.end()
            self.bus.keeper.release(delivery.lease)

"""Leases: which consumer holds a delivery, and the thread that renews them.

The token is *(consumer, delivery count)* of a stream entry. Redis increments the count whenever the
entry changes hands, so a worker that slept past its lease holds a token that no longer matches.

Renewal runs in a thread with its own connection. Neither a busy event loop nor C code that blocks
the loop for seconds can starve it. Only a stopped process misses renewals, and it should lose its
leases.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import redis
import structlog

from loopline.bus import scripts
from loopline.bus.connection import renewal_client
from loopline.bus.settings import BusSettings

log = structlog.get_logger("loopline.bus.lease")


@dataclass(frozen=True, slots=True)
class Lease:
    """A held delivery of one work stream."""

    stream: str
    """Full key of the work stream."""
    entry: str
    consumer: str
    count: int
    """Redis' delivery count; 1 on first delivery."""
    group: str = "workers"


class Verdict(IntEnum):
    """Result of a renewal; the numbers are those of renew.lua."""

    LOST = 0
    RENEWED = 1
    RUN_ENDED = 2


@dataclass(slots=True)
class _HeldLease:
    lease: Lease
    run_key: str
    on_verdict: Callable[[Verdict], None]
    renewed: float = field(default_factory=time.monotonic)
    notified: bool = False


class LeaseKeeper:
    """Renews every held lease after a third of its duration, until the lease is released.

    `on_verdict` is called from the keeper's thread, at most once, when the lease is lost or its run
    has ended.
    """

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._held: dict[Lease, _HeldLease] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, on_end: Callable[[BaseException], None]) -> None:
        """`on_end` is called in the keeper's thread with the error that stopped it, unless `stop`
        did: without the keeper, every lease expires."""

        def run() -> None:
            try:
                self._run()
            except BaseException as error:  # noqa: BLE001 - whatever it was, it must be known
                on_end(error)

        self._thread = threading.Thread(target=run, name="lease-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=self._settings.lease_seconds)

    def hold(self, lease: Lease, run_key: str, on_verdict: Callable[[Verdict], None]) -> None:
        record = _HeldLease(lease, run_key, on_verdict)
        with self._lock:
            self._held[lease] = record

    def release(self, lease: Lease) -> None:
        with self._lock:
            self._held.pop(lease, None)

    @property
    def count(self) -> int:
        return len(self._held)

    def _run(self) -> None:
        tick = self._settings.lease_seconds / 6
        client = renewal_client(self._settings)
        with contextlib.closing(client):
            while not self._stop.wait(tick):
                try:
                    self._renew_due(client)
                except (redis.RedisError, OSError) as error:
                    log.warning("leases not renewed", held=self.count, error=str(error))
                    # The address may lead to another server by now. The old server may have been
                    # demoted and would refuse each renewal until all leases are gone.
                    client.connection_pool.disconnect()

    def _renew_due(self, client: redis.Redis) -> None:
        old = time.monotonic() - self._settings.lease_seconds / 3
        with self._lock:
            due = [record for record in self._held.values() if record.renewed <= old]
        by_group: dict[tuple[str, str, str], list[_HeldLease]] = {}
        for record in due:
            # One script call may use only one hash tag.
            tag = record.lease.stream.partition("}")[0]
            by_group.setdefault((tag, record.lease.group, record.lease.consumer), []).append(record)
        for (_, group, consumer), batch in by_group.items():
            for start in range(0, len(batch), 256):
                self._renew_batch(client, group, consumer, batch[start : start + 256])

    def _renew_batch(
        self, client: redis.Redis, group: str, consumer: str, batch: list[_HeldLease]
    ) -> None:
        keys = [key for record in batch for key in (record.lease.stream, record.run_key)]
        args: list[str | int] = [group, consumer]
        for record in batch:
            args += [record.lease.entry, record.lease.count]
        verdicts = scripts.call_sync(client, "renew", keys, args)
        now = time.monotonic()
        for record, number in zip(batch, verdicts, strict=True):
            verdict = Verdict(number)
            record.renewed = now
            if verdict is Verdict.RENEWED:
                continue
            with self._lock:
                # Released meanwhile: the work is finished, and the verdict is about a settled
                # entry.
                still_held = record.lease in self._held and not record.notified
                record.notified = True
                if verdict is Verdict.LOST:
                    self._held.pop(record.lease, None)
            if still_held:
                try:
                    record.on_verdict(verdict)
                except RuntimeError as error:
                    # The lease's event loop is closed. This thread keeps all other leases.
                    log.warning("lease holder not notified", verdict=verdict.name, error=str(error))

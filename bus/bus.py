"""The bus of one process: connections, keys, payload types and common calls."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, TypeVar

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from loopline.bus import scripts, tasks
from loopline.bus.admission import Admission, Gate, script_call
from loopline.bus.agreement import Agreement, DeploymentJoin, Standing, publish_epoch, watch
from loopline.bus.budgets import Refusal, day_of
from loopline.bus.clock import MEASURE_SECONDS, Clock
from loopline.bus.commit import Committer
from loopline.bus.connection import OUTAGE, Connections, is_outage, retry_during_outage
from loopline.bus.errors import (
    BusUnavailable,
    DeploymentChanged,
    Overloaded,
)
from loopline.bus.keys import Keys, Shard
from loopline.bus.lease import LeaseKeeper
from loopline.bus.local_delivery import LocalDelivery
from loopline.bus.log_follower import LogFollower, is_entry_id
from loopline.bus.observer import Observer
from loopline.bus.registry import Registry
from loopline.bus.remedies import remedy
from loopline.bus.run_state import RunState, run_state_of
from loopline.bus.settings import BusSettings

log = structlog.get_logger("loopline.bus")

T = TypeVar("T")

OVERDUE = ("deadline", "its deadline passed")
"""Outcome and reason of a run that reached its deadline."""


class Spent(NamedTuple):
    """Cost of calls."""

    tokens: int
    micro_dollars: int


CLIENT_PATIENCE = 30.0
"""Seconds that a command waits for an unreachable Redis, as in `Bus.patience`."""


class Bus:
    """One per process. `start` checks the server, adopts the deployment's agreement (which
    determines `settings` and `keys` from then on) and starts renewing leases; it waits up to
    `join_seconds` for a server that does not answer yet. `claims` are further fields of the
    agreement, written if they do not exist yet; `agreement` has the valid ones.

    During a server outage, a call waits up to `patience` seconds, then raises `BusUnavailable`;
    workers wait indefinitely (None).
    """

    def __init__(
        self,
        settings: BusSettings,
        registry: Registry | None = None,
        *,
        join_seconds: float = 0.0,
        patience: float | None = None,
        standing: Standing = "guest",
        claims: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings
        self.patience = patience
        """Seconds that a call waits for an unreachable server; None waits indefinitely."""
        self._standing: Standing = standing
        self._claims = claims or {}
        self._join_seconds = join_seconds
        self.registry = registry or Registry()
        self.keys = Keys(settings.prefix, settings.shards)
        self.keeper = LeaseKeeper(settings)
        self.background = tasks.Background()
        """Background tasks that this process needs. A worker runs within them; a client's waiting
        calls raise `BackgroundEnded` once a task has ended."""
        self.process = uuid.uuid4().hex[:12]
        """Name of this process's inbox; no other process ever uses it again."""
        self.agreement = Agreement("", settings.shared, "", {})
        self.clock = Clock()
        self.changed: DeploymentChanged | None = None
        """Set once the deployment has agreed on other settings; this process then admits no
        runs."""
        self.on_change = asyncio.Event()
        """Set together with `changed`."""
        self._where = f"at {settings.safe_url}"
        self._connections = Connections(settings)
        self._committers: dict[Shard, Committer] = {}
        self.logs = LogFollower(self)
        self.local = LocalDelivery()
        self.observer = Observer()
        """Observer of this process's work."""

    @property
    def redis(self) -> Redis:
        """Connections for commands that return immediately. Values are bytes."""
        return self._connections.commands

    @property
    def blocking(self) -> Redis:
        """Connections for blocking reads only."""
        return self._connections.blocking

    async def start(self) -> None:
        """Join the bus. Raises `BusUnavailable`, which states the problem and the remedy, or
        `DeploymentMismatch` if the settings name a different value than the deployment's."""
        await self._connections.check(wait_seconds=self._join_seconds)
        joining = DeploymentJoin(self.redis, self.settings, self.clock, self._claims)
        await self._retry_at_start("join", lambda: self._join(joining))
        loop = asyncio.get_running_loop()

        def ended(error: BaseException) -> None:
            with suppress(RuntimeError):  # the loop is closed: no listener is left
                loop.call_soon_threadsafe(self.background.fail, "lease keeper", error)

        self.keeper.start(ended)
        self.background.start(self._keep_watch(), name="clock and agreement watch")

    async def _retry_at_start(self, what: str, operation: Callable[[], Awaitable[T]]) -> T:
        patience = max(self._join_seconds, 5.0)
        return await retry_during_outage(what, operation, give_up_after=patience, where=self._where)

    async def _join(self, joining: DeploymentJoin) -> None:
        """Agree on the time, and adopt the deployment's agreement. A server that restarts in
        between may have lost what was written before, so a failure repeats the whole procedure."""
        await self._measure_clock()
        self.agreement = await joining.join(self._standing)
        self.settings = self.settings.agreed(self.agreement.shared)
        self.keys = Keys(self.settings.prefix, self.settings.shards)
        self.keeper = LeaseKeeper(self.settings)
        self._joining = joining
        with suppress(ResponseError):  # full, or a replica: it can still be inspected
            await self._publish_epoch_to_shards()

    async def _publish_epoch_to_shards(self) -> None:
        await self.clock.tell(self.redis, self.keys)
        await publish_epoch(self.redis, self.keys.all_shards(), self.agreement.epoch)

    async def _measure_clock(self) -> None:
        await self.clock.measure(self.redis, self.keys)
        if not self.clock.measured:
            raise BusUnavailable(
                f"the clock of Redis at {self.settings.safe_url} can't be measured: it answers too"
                " slowly"
            )

    async def _keep_watch(self) -> None:
        """Follow the server's clock and the deployment's agreement, while the bus is joined."""
        while True:
            await asyncio.sleep(MEASURE_SECONDS)
            try:
                await self.clock.measure(self.redis, self.keys)
                await self.clock.keep(self.redis, self.keys)
                if self.changed is None:
                    await watch(self.redis, self.keys, self.agreement, self._joining)
            except DeploymentChanged as error:
                self.changed = error
                self.on_change.set()
            except OUTAGE as error:
                if not is_outage(error):
                    raise
                log.debug("clock and agreement not checked", error=str(error))

    async def check_writable(self) -> None:
        """Raises `BusUnavailable` with the remedy if the server accepts no writes now."""

        async def probe() -> None:
            try:
                await self.redis.set(self.keys.probe, b"", px=1000)
            except ResponseError as error:  # of a server that is there
                raise BusUnavailable(
                    f"Redis at {self.settings.safe_url} accepts no writes ({error}): "
                    f"{remedy(error)}"
                ) from error

        await self._retry_at_start("write check", probe)

    async def close(self) -> None:
        await self.background.end()
        self.keeper.stop()
        await self._connections.close()

    async def __aenter__(self) -> Bus:
        try:
            await self.start()
        except BaseException:
            await self._connections.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def committer(self, shard: Shard) -> Committer:
        """The only committer of a shard: all consumers' commits share its batches."""
        committer = self._committers.get(shard)
        if committer is None:
            committer = self._committers[shard] = Committer(
                self.redis, self.settings, shard, shard.inbox(self.process)
            )
        return committer

    async def _retry_during_outage(self, what: str, operation: Callable[[], Awaitable[T]]) -> T:
        return await retry_during_outage(
            what, operation, give_up_after=self.patience, where=self._where
        )

    async def admit(self, admission: Admission, gate: Gate | None = None) -> bool:
        """Admit a run. True if it is new, False if the same run was admitted before, or the gate is
        closed.

        Idempotent, and repeated during outages for 30 s. Raises `Overloaded`, `BudgetExceeded`,
        `MessageTooLarge`, `DeploymentChanged` or `BusUnavailable`; only with `BusUnavailable` may
        the run have been accepted.
        """
        shard = self.keys.shard_of(admission.run_id)
        left = self.clock.left(admission.deadline)
        bodies, keys, args = script_call(
            admission, shard, self.settings, self.agreement.epoch, left=left
        )
        result = await self._send_admission(shard, admission, keys, args, bodies, gate)
        if result[0] == b"closed":
            raise Overloaded("the number of shards is being changed: try again later")
        if result[0] == b"changed":
            raise DeploymentChanged(
                f"run {admission.run_id} was not admitted: the settings of the deployment "
                f"{self.settings.prefix!r} have changed since this process joined it: restart this "
                "process"
            )
        if result[0] == b"overloaded":
            what, count, limit = result[1].decode(), int(result[2]), int(result[3])
            raise Overloaded(f"{count} {what}, the limit is {limit}: try again later")
        if result[0] == b"budget":
            raise Refusal.of(result).error(f"run {admission.run_id}")
        return result[0] == b"admitted"

    async def _send_admission(
        self,
        shard: Shard,
        admission: Admission,
        keys: list[str],
        args: list[scripts.Value],
        bodies: Sequence[bytes],
        gate: Gate | None,
    ) -> list[Any]:
        """Send the admission, and start on the messages that this process has read. Returns the
        answer of `admit.lua`."""

        async def send(name: str, keys: list[str], args: list[scripts.Value]) -> list[Any]:
            return await retry_during_outage(
                "admission",
                lambda: scripts.call(self.redis, name, keys, args),
                give_up_after=30.0,
                where=self._where,
            )

        if gate is not None or not self.local.serves(admission.messages):
            args += [value for body in bodies for value in (body, "")]
            if gate is None:
                return await send("admit", keys, args)
            return await send(gate.script, [*gate.keys, *keys], [*gate.args, *args])
        state = RunState(
            admission.run_id,
            "active",
            admission.run,
            admission.journal,
            deadline=int(admission.deadline * 1000) / 1000,
            run_record=admission.record,
            step_records=None if admission.journal else (),
        )

        if len(bodies) == 1 and not (admission.journal or admission.joins or admission.delay):
            results: list[Any] = []
            with self.local.starting_run(
                shard,
                state,
                admission.messages[0].stream,
                admission.messages[0].envelope,
                bodies[0],
            ) as start:
                if start is not None:
                    await start.wait_until_ready()
                    results = await send("start", *start.script_parts(keys, args, bodies[0]))
                    start.settle(results)
            if start is not None:
                # Started steps continue first, up to what they send, so that others can work on it
                # meanwhile.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                return results[0]
        with self.local.reading(shard, [message.stream for message in admission.messages]) as reads:
            for body, reader in zip(bodies, reads.names, strict=True):
                args += [body, reader]
            result = await send("admit", keys, args)
            if result[0] == b"admitted":
                reads.take(result[1:], bodies, state)
            return result

    async def run_state(self, run_id: str) -> RunState:
        """The run and its journal, read atomically."""
        shard = self.keys.shard_of(run_id)
        keys = [shard.run(run_id), shard.journal(run_id)]
        fields, steps = await self._retry_during_outage(
            "run state", lambda: scripts.call(self.redis, "run_state", keys, [])
        )
        named: dict[bytes, bytes] = dict(zip(fields[::2], fields[1::2], strict=True))
        return run_state_of(run_id, named, steps)

    async def deadline_of(self, run_id: str) -> float | None:
        """Deadline of an active run, in Unix seconds; `None` for any other run. A replay may have
        moved it past the deadline in the run's record and in older messages."""
        deadline, _ = await self.deadline_and_limited(run_id)
        return deadline

    async def deadline_and_limited(self, run_id: str) -> tuple[float | None, bool]:
        """Deadline, as `deadline_of` returns it, and whether a budget may limit the run's calls."""
        shard = self.keys.shard_of(run_id)

        async def read() -> list[Any]:
            async with self.redis.pipeline(transaction=False) as pipe:
                pipe.hmget(shard.run(run_id), ["state", "deadline", "limited"])
                pipe.exists(shard.budgets)
                return await pipe.execute()

        (state, deadline, limited), is_set = await self._retry_during_outage("run state", read)
        seconds = int(deadline) / 1000 if state == b"active" else None
        return seconds, limited == b"1" or bool(is_set)

    async def enforce_deadline(self, run_id: str) -> bool:
        """Whether the run is still wanted. This ends an overdue run with the sweepers' script:
        without workers there are no sweepers, and the run's clients would wait forever."""
        return await self._end(run_id, *OVERDUE, only_if_overdue=True) == b"alive"

    async def is_active(self, run_id: str) -> bool:
        """Whether the run is still wanted; modifies nothing."""
        state, _ = await self._state_of(self.keys.shard_of(run_id).run(run_id))
        return state == b"active"

    async def end_run(
        self, run_id: str, outcome: str, reason: str, *, only_if_overdue: bool = False
    ) -> bool:
        """End a run from outside. False if it had ended, is unknown or not overdue.

        Works on a full server too, because an ended run's data can be freed.
        """
        result = await self._end(run_id, outcome, reason, only_if_overdue=only_if_overdue)
        return result == b"ended"

    async def _end(self, run_id: str, outcome: str, reason: str, *, only_if_overdue: bool) -> bytes:
        shard = self.keys.shard_of(run_id)
        keys = [
            shard.run(run_id),
            shard.journal(run_id),
            shard.log(run_id),
            shard.usage(run_id),
            shard.active,
            shard.trajectories,
            shard.history,
            shard.ledger,
        ]
        args: list[scripts.Value] = [
            run_id,
            outcome,
            reason,
            int(self.settings.retention_seconds * 1000),
            int(self.settings.history),
            int(only_if_overdue),
        ]

        async def end() -> bytes:
            return await scripts.call(self.redis, "end", keys, [*args, self.clock.now_ms()])

        return await self._retry_during_outage("end run", end)

    async def cancel(self, run_id: str, reason: str = "cancelled by its user") -> bool:
        """Cancel a run. Its worker learns about it at the next renewal or commit."""
        return await self.end_run(run_id, "cancelled", reason)

    async def usage(self, run_id: str) -> list[bytes]:
        """Usage entries of a run, JSON each, in the order in which they were written."""
        key = self.keys.shard_of(run_id).usage(run_id)
        return await self._retry_during_outage("usage", lambda: self.redis.lrange(key, 0, -1))  # pyright: ignore

    async def spent(self, account: str) -> Spent:
        """Cost of the calls of an account's runs since midnight (UTC)."""
        day = day_of(self.clock.now())
        tokens = micro_dollars = 0
        for shard in self.keys.all_shards():
            key = shard.spent(account, day)
            counts = await self._retry_during_outage(
                "spent",
                lambda: self.redis.hmget(key, "tokens", "micro"),  # noqa: B023 # pyright: ignore
            )
            tokens += int(counts[0] or 0)
            micro_dollars += int(counts[1] or 0)
        return Spent(tokens, micro_dollars)

    async def active_runs(self) -> list[tuple[str, float]]:
        """Runs in flight with their deadlines (Unix seconds)."""
        runs: list[tuple[str, float]] = []
        for shard in self.keys.all_shards():
            members = await self.redis.zrange(shard.active, 0, -1, withscores=True)
            runs += [(run_id.decode(), score / 1000) for run_id, score in members]
        return runs

    async def follow(
        self, run_id: str, after: str = "0-0", *, fresh: bool = False
    ) -> AsyncGenerator[tuple[str, dict[str, str]]]:
        """Yield the run's log after entry `after`: (id, fields) until the run has ended.

        A follower that lost its connection, or was restarted, continues after the last id it saw,
        without gaps or repeats. `fresh`: the run was admitted a moment ago. Entries: `tokens` and
        `restart` (call, agent, offset, text, ids, weights), `step` (guard, index), `ended`
        (outcome, answer, reason, generation: how often the run was replayed before). Raises
        ValueError if `after` is not an entry id, which would break the read that all followers
        share.
        """
        if not is_entry_id(after):
            raise ValueError(f"{after[:64]!r} is not an entry id")
        shard, quiet = self.keys.shard_of(run_id), 0
        async with aclosing(self.logs.follow(run_id, after, fresh=fresh)) as events:
            async for entry, event in events:
                if not event:
                    word = await self._end(run_id, *OVERDUE, only_if_overdue=True)
                    quiet = 0 if word == b"alive" else quiet + 1
                    if word == b"missing" or quiet > 1:
                        break
                    continue
                quiet, after = 0, entry
                yield entry, event
                if event["type"] == "ended":
                    if event["outcome"] != "error":  # only runs in error can be replayed
                        return
                    _, generation = await self._state_of(shard.run(run_id))
                    # A replay has reactivated the run since: this end was not its last.
                    if generation is None or generation.decode() == event["generation"]:
                        return
        # The run has ended. Its last entry was read or has expired, or the read that followers
        # share still pauses after an outage.
        async for remaining in self.logs.page(run_id, after):
            yield remaining

    async def _state_of(self, run_key: str) -> tuple[bytes | None, bytes | None]:
        state, generation = await self._retry_during_outage(
            "run state",
            lambda: self.redis.hmget(run_key, "state", "generation"),  # pyright: ignore
        )
        return state, generation

    async def queue_lengths(self, streams: Sequence[str]) -> dict[str, int]:
        """Unfinished messages per work stream: the true lag, since settled messages are deleted."""
        lengths = dict.fromkeys(streams, 0)
        for shard in self.keys.all_shards():
            for name in streams:
                lengths[name] += int(await self.redis.xlen(shard.work(name)))
        return lengths

"""Dead letters: messages that failed after all retries, stored whole with the reason, to inspect
and replay."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from loopline.bus import scripts
from loopline.bus.connection import retry_during_outage
from loopline.bus.envelope import Envelope
from loopline.bus.errors import BusError, MalformedEnvelope
from loopline.bus.keys import DEAD_LIFE_MS, Shard
from loopline.bus.lease import Lease
from loopline.bus.replies import error_reply

if TYPE_CHECKING:
    from loopline.bus.bus import Bus

log = structlog.get_logger("loopline.bus.dead_letters")

REPLAY_SECONDS = 600.0
"""Minimum time that a replayed run gets, in seconds."""

_ID = re.compile(r"([0-9]{1,3})/([0-9]{1,19}-[0-9]{1,19})")
"""Shard and entry of an id. It matches only ids that Redis accepts as entry ids."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that was given up. `id` contains shard and entry."""

    id: str
    stream: str
    run_id: str
    reason: str
    traceback: str
    deliveries: int
    consumer: str
    envelope: bytes
    """The message as it was on the wire, which may not be an envelope at all."""
    at: float
    """Time when it was given up, in Unix seconds."""


async def add_dead_letter(
    bus: Bus,
    shard: Shard,
    stream: str,
    lease: Lease,
    body: bytes,
    reason: str,
    *,
    trace: str = "",
    envelope: Envelope | None = None,
) -> None:
    """Move a held delivery to the dead letters. Its run ends with `error`; if it is a request, its
    waiters get an error reply instead and decide for themselves."""
    if envelope is None:
        try:
            envelope = Envelope.from_json(body)
        except MalformedEnvelope:
            envelope = None
    run_id = envelope.run_id if envelope else ""
    is_request = bool(envelope and envelope.reply_key)
    reply = error_reply("dead_letter", reason, retryable=False) if is_request else b""
    request = shard.request(envelope.reply_key if envelope else "")
    # Workers that answer requests may not read runs, and end none: the run's keys would be needed.
    ends_run = bool(run_id) and not is_request
    keys = [
        lease.stream,
        shard.dead,
        shard.run(run_id),
        shard.journal(run_id) if ends_run else request,
        shard.log(run_id) if ends_run else request,
        shard.usage(run_id),
        shard.active,
        shard.trajectories if ends_run else request,
        shard.history,
        request,
        shard.ledger,
    ]
    args: list[scripts.Value] = [
        lease.group,
        lease.entry,
        lease.consumer,
        lease.count,
        run_id,
        body,
        reason.encode(errors="replace"),
        trace.encode(errors="replace"),
        stream,
        int(bus.settings.retention_seconds * 1000),
        int(bus.settings.history),
        DEAD_LIFE_MS,
        reply,
        int(ends_run),
    ]
    result = await retry_during_outage(
        "dead letter", lambda: scripts.call(bus.redis, "dead", keys, args)
    )
    if result == b"ok":
        bus.observer.dead_lettered(stream)
        log.error("dead letter", stream=stream, run_id=run_id, reason=reason)


async def ls(bus: Bus) -> AsyncIterator[DeadLetter]:
    """All dead letters, newest first within a shard."""
    for shard in bus.keys.all_shards():
        last = "+"
        while True:
            page = await bus.redis.xrevrange(shard.dead, max=last, count=100)
            for entry, fields in page:
                yield _letter(shard, entry, fields)
            if len(page) < 100:
                break
            last = f"({page[-1][0].decode()}"


async def show(bus: Bus, letter_id: str) -> DeadLetter:
    """One dead letter. Raises `BusError` if it does not exist."""
    shard, entry = _parse(bus, letter_id)
    entries = await bus.redis.xrange(shard.dead, entry, entry)
    if not entries:
        raise BusError(f"no dead letter {letter_id}; `runtime dead ls` lists them")
    return _letter(shard, *entries[0])


async def replay(bus: Bus, letter_id: str) -> str:
    """Send a letter back to its stream and reactivate its run. Returns the stream's name.

    Raises `BusError` with the reason if it can't be replayed: it is not an envelope, it was already
    replayed, its run's journal has expired, or its run ended in another way.
    """
    letter = await show(bus, letter_id)
    shard, entry = _parse(bus, letter_id)
    try:
        envelope = Envelope.from_json(letter.envelope)
    except MalformedEnvelope as error:
        raise MalformedEnvelope(
            f"dead letter {letter_id} can't be replayed: {error}; `runtime dead show {letter_id}` "
            f"shows all of it, `runtime dead purge {letter_id}` deletes it"
        ) from error
    deadline = max(envelope.deadline, bus.clock.now() + REPLAY_SECONDS)
    again = envelope.model_copy(update={"attempt": 0, "deadline": deadline, "handed_back": 0.0})
    is_request = bool(envelope.reply_key)
    result = await scripts.call(
        bus.redis,
        "replay_dead",
        [shard.dead, shard.work(letter.stream), shard.run(envelope.run_id), shard.active,
         shard.history, shard.journal(envelope.run_id), shard.log(envelope.run_id),
         shard.usage(envelope.run_id)],
        [entry, again.to_json(), envelope.run_id, int(deadline * 1000),
         int(bus.settings.retention_seconds * 1000), int(bus.settings.history), int(is_request)],
    )  # fmt: skip
    why = {
        b"missing": "it was replayed or purged meanwhile",
        b"expired": f"the journal of run {envelope.run_id} has expired",
        b"ended": f"run {envelope.run_id} has since ended in another way",
        b"over": f"it is a request of run {envelope.run_id}, which has ended: nobody waits for "
        "its answer",
    }
    if result in why:
        raise BusError(f"dead letter {letter_id} can't be replayed: {why[result]}")
    return letter.stream


async def purge(bus: Bus, letter_id: str | None = None) -> int:
    """Delete one letter, or all. Returns the number of deleted letters."""
    if letter_id is not None:
        shard, entry = _parse(bus, letter_id)
        return int(await bus.redis.xdel(shard.dead, entry))
    gone = 0
    for shard in bus.keys.all_shards():
        gone += int(await bus.redis.xlen(shard.dead))
        await bus.redis.delete(shard.dead)
    return gone


def _parse(bus: Bus, letter_id: str) -> tuple[Shard, str]:
    match = _ID.fullmatch(letter_id)
    if match is None or int(match[1]) >= bus.keys.shards:
        raise BusError(f"{letter_id!r} is not a dead letter's id (like 0/1718000000000-0)")
    return bus.keys.shard(int(match[1])), match[2]


def _letter(shard: Shard, entry: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
    def text(name: bytes) -> str:
        return fields.get(name, b"").decode(errors="replace")

    return DeadLetter(
        id=f"{shard.index}/{entry.decode()}",
        stream=text(b"stream"),
        run_id=text(b"run_id"),
        reason=text(b"reason"),
        traceback=text(b"traceback"),
        deliveries=int(fields.get(b"deliveries", b"0")),
        consumer=text(b"consumer"),
        envelope=fields.get(b"envelope", b""),
        at=int(entry.split(b"-")[0]) / 1000,
    )

"""Sessions: consecutive calls of a client to one agent.

Each call is a run with the session's id as a tag. A call whose messages start with an earlier
call's messages and answer continues that call: the new run contains the model's own text of the
earlier answer and the token ids of its prompt and output, so that nothing is tokenized twice. The
bus stores a session as a hash under its id: digest of messages and answer → the run that produced
the answer.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from loopline.agents.records import Call, Message, Trajectory
from loopline.agents.roles.conversation import assistant_message
from loopline.bus import Bus
from loopline.bus.keys import MAX_RUN_SECONDS
from loopline.runtime.client.run_ids import time_of_run_id
from loopline.runtime.client.run_records import run_of, steps_of
from loopline.runtime.gateway.errors import ApiError, invalid
from loopline.workers.json_bytes import json_bytes

HEADER = "x-loopline-session"
TAG = "session"
CALLS_PER_SWEEP = 64
"""Average number of calls of a session between two removals of its old calls."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Session:
    """One session of one caller."""

    name: str
    caller: str

    @property
    def digest(self) -> str:
        """Digest of caller and name. Callers don't share sessions, since their keys may allow
        different models."""
        return hashlib.sha256(f"{self.caller}\0{self.name}".encode()).hexdigest()


def session_of(path_name: str | None, header: str | None, caller: str) -> Session | None:
    """Return the session that a request belongs to. Raises `ApiError`."""
    if path_name and header and path_name != header:
        raise invalid(f"the path names the session {path_name!r}, and {HEADER} another")
    name = path_name or header
    if name is None:
        return None
    if _NAME.fullmatch(name) is None:
        raise ApiError(
            400,
            "a session's name has at most 128 letters, digits, '.', '_' and '-', and begins with a"
            " letter or digit",
            code="invalid_session",
        )
    return Session(name, caller)


@dataclass(frozen=True)
class Continuation:
    """A conversation that continues an earlier call."""

    messages: tuple[Message, ...]
    previous: Call | None = None


class SessionMemory:
    """Stores the calls of sessions on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def continuation(self, session: Session, messages: tuple[Message, ...]) -> Continuation:
        """Return the conversation with the model's own text of its earlier answers."""
        digests = _prefix_digests(messages)
        ends = [i for i, message in enumerate(messages) if message.role == "assistant"]
        if not ends:
            return Continuation(messages)
        key = self._bus.keys.session(session.digest)
        fields = [digests[end] for end in ends]
        runs: list[bytes | None] = await self._bus.redis.hmget(key, fields)  # pyright: ignore
        for end, run_id in zip(reversed(ends), reversed(runs), strict=True):
            if run_id is None:
                continue
            state = await self._bus.run_state(run_id.decode())
            if state.state == "missing":
                continue
            steps = steps_of(state)
            if not steps or not steps[-1].calls:
                continue
            call = steps[-1].calls[0]
            earlier = (*run_of(state).task.messages, assistant_message(call))
            if len(earlier) != end + 1:
                continue
            return Continuation((*earlier, *messages[end + 1 :]), ids_of(call))
        return Continuation(messages)

    async def note(self, session: Session, trajectory: Trajectory) -> None:
        """Store an answered call. If the gateway dies before this, the next call of the session
        starts a new sample."""
        if not trajectory.steps or not trajectory.steps[-1].calls:
            return
        call = trajectory.steps[-1].calls[0]
        messages = (*trajectory.run.task.messages, assistant_message(call))
        key = self._bus.keys.session(session.digest)
        async with self._bus.redis.pipeline(transaction=True) as pipe:
            pipe.hset(key, _prefix_digests(messages)[-1], trajectory.run.id)
            pipe.pexpire(key, int(self._bus.settings.retention_seconds * 1000))
            await pipe.execute()
        if zlib.crc32(trajectory.run.id.encode()) % CALLS_PER_SWEEP == 0:
            await self._forget_old_calls(key)

    async def _forget_old_calls(self, key: str) -> None:
        """Remove calls of a session whose runs have left the bus: each call extends the lifetime of
        the whole session, and a client may use one session forever."""
        settings = self._bus.settings
        oldest = self._bus.clock.now() - settings.retention_seconds - MAX_RUN_SECONDS
        fields: dict[bytes, bytes] = await self._bus.redis.hgetall(key)  # pyright: ignore
        gone = [
            field
            for field, run_id in fields.items()
            if (since := time_of_run_id(run_id.decode())) is not None and since < oldest
        ]
        if gone:
            await self._bus.redis.hdel(key, *gone)  # pyright: ignore


def ids_of(call: Call) -> Call:
    """Return the part of the earlier call that the engine needs to continue."""
    unneeded = ("logprobs", "raw_logprobs", "tokens", "reported_logprobs", "top_logprobs")
    return call.model_copy(update={"text": "", "reasoning": "", **dict.fromkeys(unneeded, ())})


def _prefix_digests(messages: Sequence[Message]) -> list[str]:
    """Return one digest per message, of all messages up to it, as a client sends them back."""
    digest, digests = hashlib.sha256(), list[str]()
    for message in messages:
        digest.update(
            json_bytes(
                [
                    message.role,
                    message.content.strip(),
                    [(call.id, call.name, call.arguments) for call in message.tool_calls],
                    message.tool_call_id,
                    message.name,
                    *(part.model_dump() for part in message.parts),
                ],
                sort_keys=True,
            )
        )
        digests.append(digest.copy().hexdigest())
    return digests

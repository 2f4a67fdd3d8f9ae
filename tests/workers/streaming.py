"""Streamed completions, requested like a role worker and read over a bad connection."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

from loopline.agents.records import Call, SamplingParams
from loopline.agents.usage import UsageEntry
from loopline.bus import Admission, Bus, Envelope, Inbox
from loopline.workers.messages import CompletionPayload, calls, inference_stream
from tests.bus.payloads import new_run_id
from tests.workers.engines.asking import QUESTION, user


@dataclass(eq=False)
class Reader:
    """A follower of a run's log that is cut off after every entry and resumes by its id."""

    text: str = ""
    ids: list[int] = field(default_factory=list[int])
    restarts: int = 0

    async def read(self, bus: Bus, run_id: str) -> None:
        """Follow until the run has ended."""
        after = "0-0"
        while True:
            pair = await anext(bus.follow(run_id, after), None)
            if pair is None or pair[1]["type"] == "ended":
                return
            after, entry = pair
            if entry["type"] == "restart":
                self.text, self.ids, self.restarts = "", [], self.restarts + 1
            assert int(entry["offset"]) == len(self.ids), "each piece stands where the last ended"
            self.text += entry["text"]
            self.ids += json.loads(entry["ids"])


@dataclass(eq=False)
class Streamed:
    """Send one request of a new run."""

    run_id: str
    reply: asyncio.Task[Call]
    reader: Reader
    reading: asyncio.Task[None]

    async def call(self, bus: Bus) -> Call:
        """Return the answer after the run has ended and its log was read to the end."""
        call = await self.reply
        await bus.end_run(self.run_id, "answered", "")
        await self.reading
        return call

    async def usage(self, bus: Bus) -> list[UsageEntry]:
        return [UsageEntry.model_validate_json(entry) for entry in await bus.usage(self.run_id)]


async def ask_streaming(
    bus: Bus, inbox: Inbox, pool: str, seed: int, *, temperature: float = 0.0
) -> Streamed:
    """Admit a run and send its request."""
    run_id, deadline = new_run_id(), time.time() + 110
    await bus.admit(Admission(run_id, b"{}", deadline, ()))
    payload = CompletionPayload(
        agent="slm",
        pool=pool,
        messages=(user(QUESTION),),
        sampling=SamplingParams(temperature=temperature, max_tokens=120),
        seed=seed,
        stream=True,
    )
    envelope = Envelope(
        type="completion",
        run_id=run_id,
        turn=0,
        branch=0,
        deadline=deadline,
        reply_key=f"{run_id}/0.0/0",
        payload=payload.model_dump(mode="json"),
    )

    async def reply() -> Call:
        (call,) = calls.validate_json(await inbox.request(inference_stream(pool), envelope))
        return call

    reader = Reader()
    reading = asyncio.create_task(reader.read(bus, run_id))
    return Streamed(run_id, asyncio.create_task(reply()), reader, reading)

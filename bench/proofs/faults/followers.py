"""Clients that read along while models generate, and lose their connection again and again."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import aclosing

from loopline.bench.proofs.faults.evidence import Followed
from loopline.bus import Bus, tasks

CUT_AFTER = (1, 30)
"""Range of the number of entries that a follower reads before it disconnects and returns with the
last id that it saw."""


class Followers:
    """Followers, one for each followed run."""

    def __init__(self, bus: Bus, seed: int) -> None:
        self._bus = bus
        self._random = random.Random(seed)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, Followed] = {}

    def follow(self, run_id: str) -> None:
        self._seen[run_id] = Followed(run_id=run_id)
        self._tasks[run_id] = asyncio.create_task(self._read(run_id), name=f"follow-{run_id}")

    async def done(self, seconds: float) -> list[Followed]:
        """Return the events that each follower has seen, once all runs have ended; followers that
        still wait then are cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)
        for run_id, task in self._tasks.items():
            if not task.done():
                self._seen[run_id].faults.append("its follower never saw the end")
            elif error := task.exception():
                self._seen[run_id].faults.append(f"its follower died: {error!r}")
        await tasks.end(self._tasks.values())
        return list(self._seen.values())

    async def _read(self, run_id: str) -> None:
        record, last = self._seen[run_id], "0-0"
        places: dict[str, int] = defaultdict(int)
        while True:
            remaining = self._random.randint(*CUT_AFTER)
            async with aclosing(self._bus.follow(run_id, last)) as events:
                async for entry, event in events:
                    if _place(entry) <= _place(last):
                        record.faults.append(f"entry {entry} came after {last}")
                    last = entry
                    if event["type"] == "ended":
                        return
                    _record_event(record, event, places)
                    remaining -= 1
                    if not remaining:
                        break
                else:
                    record.faults.append("the log ended without the run's end")
                    return


def _record_event(record: Followed, event: dict[str, str], places: dict[str, int]) -> None:
    if event["type"] not in ("tokens", "restart"):
        return
    call, at = event["call"], int(event["offset"])
    if event["type"] == "restart":
        places[call], record.texts[call] = 0, ""
    if at != places[call]:
        record.faults.append(f"call {call}: token {at} came instead of {places[call]}")
    places[call] = at + len(event["ids"].strip("[]").split(",")) * (event["ids"] != "[]")
    record.texts[call] = record.texts.get(call, "") + event["text"]


def _place(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)

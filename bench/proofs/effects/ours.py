"""Calls of tools through our own workers."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from loopline.agents.errors import RequestFailed
from loopline.agents.records import Budget, JsonObject
from loopline.agents.tools import ToolContext, declaration, signature, tool, tools
from loopline.agents.tools.effects import Effect
from loopline.bench.proofs.effects import counter
from loopline.bench.proofs.effects.counter import Effects, read_effects, take_effect
from loopline.bench.proofs.effects.interruption import LineWatch
from loopline.bench.proofs.effects.processes import Crew, Interruptions, files_of
from loopline.bus import Bus, BusSettings, Consumer, Inbox, delivery
from loopline.bus import effects as bus_effects
from loopline.runtime.client.client import Client
from loopline.workers import tool as tool_worker
from loopline.workers.host import BusHost
from loopline.workers.messages import TOOL_STREAM, registry
from loopline.workers.tool import CallNote, tool_handler

EFFECTS: tuple[Effect, ...] = ("keyed", "once", "none")
WORKERS = 3
PLACES = 8
IN_FLIGHT = 32
CALLS_OF_A_RUN = 50
MOST_TIMES = 10
"""Most calls, as a multiple of the requested number, until every kind of attack has happened."""
FILES = files_of([tool_worker, bus_effects, delivery, declaration, signature, counter])
"""Files on a call's way through a worker, from the handler to its reply."""


@dataclass
class Played:
    """Calls of one kind, as the world and the callers saw them."""

    effects: Effects
    answers: dict[int, JsonObject] = field(default_factory=dict[int, JsonObject])
    """Answers by call."""
    listed: frozenset[str] = frozenset()
    """Keys of the calls that are listed as unknown at the end."""

    @property
    def unknown(self) -> list[int]:
        """Calls whose caller received the outcome `unknown`."""
        return [call for call, answer in self.answers.items() if answer.get("outcome") == "unknown"]

    @property
    def unlisted(self) -> int:
        """Number of unknown calls that no list contains."""
        return sum(self.answers[call]["call"] not in self.listed for call in self.unknown)

    @property
    def wrong(self) -> int:
        """Number of calls whose answer is not their result, or is their result but without an
        effect."""
        return sum(
            answer != {"result": f"done {call}"} or not self.effects.times[call]
            for call, answer in self.answers.items()
            if answer.get("outcome") != "unknown"
        )


def serve(settings: BusSettings, folder: Path, watch: LineWatch) -> None:
    """Run a tool worker until it is killed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for effect in EFFECTS:
        _register(effect, folder / effect)
    watch.install()
    asyncio.run(_serve(settings))


def _register(effect: Effect, file: Path) -> None:
    def act(call: int, context: ToolContext) -> str:
        """Act on the world."""
        take_effect(file, call, context.key)
        return f"done {call}"

    tools.register(tool(name=effect, quick=True, effect=effect)(act))


async def _serve(settings: BusSettings) -> None:
    async with Bus(settings, registry()) as bus:
        handler = tool_handler()
        name = f"tool-{os.getpid()}"
        await Consumer(bus, [TOOL_STREAM], handler, concurrency=PLACES, worker=name).run()


async def play(
    settings: BusSettings, folder: Path, calls: int, rng: random.Random, say: Callable[[str], None]
) -> tuple[dict[Effect, Played], Interruptions]:
    """Make this many calls of each kind, through workers that are interrupted meanwhile; up to
    `MOST_TIMES` as many, until a worker was killed and one paused."""
    crew = Crew(
        partial(serve, settings, folder), FILES, folder, rng,
        size=WORKERS, pause_seconds=settings.lease_seconds,
    )  # fmt: skip
    finished = asyncio.Event()
    answers: dict[Effect, dict[int, JsonObject]] = {effect: {} for effect in EFFECTS}

    async def call_all() -> None:
        try:
            await _call_all(settings, calls, answers, crew, say)
        finally:
            finished.set()

    await asyncio.gather(call_all(), crew.work(finished))
    listed = await _listed(settings)
    played: dict[Effect, Played] = {
        effect: Played(read_effects(folder / effect), answers[effect], listed) for effect in EFFECTS
    }
    return played, crew.done


async def _call_all(
    settings: BusSettings,
    calls: int,
    answers: dict[Effect, dict[int, JsonObject]],
    crew: Crew,
    say: Callable[[str], None],
) -> None:
    places = asyncio.Semaphore(IN_FLIGHT)
    count, begun = 0, 0

    async with (
        Client.connect(settings) as client,
        Bus(settings, registry()) as bus,
        Inbox(bus) as inbox,
        asyncio.TaskGroup() as group,
    ):

        async def one_call(host: BusHost, effect: Effect, call: int) -> None:
            nonlocal count
            try:
                while call not in answers[effect]:
                    try:
                        answers[effect][call] = await host.call_tool(effect, {"call": call})
                    except RequestFailed as error:
                        if not error.retryable:
                            answers[effect][call] = {"error": str(error)}
            finally:
                places.release()
            count += 1
            if count % 1_000 == 0:
                say(f"{count:,} of {calls * len(EFFECTS):,} calls answered")

        first = 0
        # On a busy machine processes reach the lines of their attacks late, so more calls are
        # needed.
        while first < calls or (not crew.has_attacked and first < MOST_TIMES * calls):
            run = client.new_run("Act.", budget=Budget(seconds=3_600))
            await client.submit(run)
            last = first + CALLS_OF_A_RUN
            for call in range(first, last if first >= calls else min(calls, last)):
                for place, effect in enumerate(EFFECTS):
                    await places.acquire()
                    begun += 1
                    await crew.keep_pace(begun)
                    host = BusHost(inbox, run, "planner", call, place)
                    group.create_task(one_call(host, effect, call))
            first = last


async def _listed(settings: BusSettings) -> frozenset[str]:
    async with Bus(settings, registry()) as bus:
        return frozenset(
            [
                CallNote.model_validate_json(call.note).key
                async for call in bus_effects.unfinished(bus)
            ]
        )

"""Runs a soak: sends the requests, carries out the plan for them and for the adapters, and checks
the final state."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from loopline.agents.records import Message, SamplingParams
from loopline.bench.errors import BenchError, UsageError
from loopline.bench.proofs.engine.vllm_servers import vllm_settings
from loopline.bench.proofs.outcome import Violation
from loopline.bench.proofs.soak import invariants, memory
from loopline.bench.proofs.soak.invariants import Seen, Sums
from loopline.bench.proofs.soak.weights import RANK, SETS, Prepared
from loopline.bench.proofs.soak.workload import (
    ADAPTERS,
    WORD,
    Operation,
    Planned,
    Room,
    operations,
    plan_request,
)
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.in_flight import Ticket
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.engine import LocalEngine
from loopline.workers.engines.local.row import Job, Row
from loopline.workers.engines.protocol import Completion, EngineError, EngineTotals, GenerateRequest
from loopline.workers.engines.settings import ModelSettings

PATIENCE = 120.0
"""Seconds after which a request counts as never answered."""

REPEATS = 200
"""Approximate number of answers that are compared with those of an idle engine."""

REPEATABLE = 0.24
"""Approximate share of the requests that are greedy and answered."""

LINE_SECONDS = 5.0
"""Seconds between two lines of progress."""

TOKENS_IN_FLIGHT = {"llama_cpp": 8, "torch": 4096}
"""Limit of tokens in flight, so low that requests wait for memory and llama_cpp preempts rows:
llama_cpp has at least the cells of one context, and torch counts the longest row for each."""

SMALLEST_CONTEXT = 512
"""Smallest context that fits the usual prompts and their answers, even if every letter is a
token."""

SHOWN = 100
"""Most violations that are kept in full; all are counted."""


@dataclass(frozen=True)
class Baseline:
    """An answer to repeat without load, with the set of weights of its adapter."""

    planned: Planned
    weights: int | None
    answers: list[Completion]


@dataclass
class SoakResult:
    """Result of a soak."""

    sums: Sums = field(default_factory=Sums)
    rules: Counter[str] = field(default_factory=Counter[str])
    """Number of violations of each rule."""
    violations: list[Violation] = field(default_factory=list[Violation])
    """The first violations."""
    operations: Counter[str] = field(default_factory=Counter[str])
    samples: list[int] = field(default_factory=list[int])
    """Resident bytes, sampled evenly over the requests."""
    latest: float = 0.0
    """Most seconds from a cancellation or a deadline to the end of the request."""
    totals: EngineTotals = field(default_factory=lambda: EngineTotals(0, 0, 0))
    """Totals that the engine counted itself."""
    rested: bool = False
    """Whether all requests were sent, and the engine was checked at rest."""
    repeated: int = 0
    tied: int = 0
    difference: float = 0.0
    """Greatest difference of a log-probability from the one without load."""
    seconds: float = 0.0
    """Seconds of the requests, without the repeats."""

    def add(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            self.rules[violation.rule] += 1
            if len(self.violations) < SHOWN:
                self.violations.append(violation)


class Soak:
    """One soak. `result` may be read at any time, even after an interruption."""

    def __init__(
        self,
        engine: str,
        prepared: Prepared,
        *,
        requests: int,
        seed: int,
        concurrency: int,
        threads: int,
        progress: Callable[[str], None],
    ) -> None:
        self.result = SoakResult()
        self._kind = engine
        self._prepared = prepared
        self._requests = requests
        self._seed = seed
        self._concurrency = concurrency
        self._threads = threads
        self._progress = progress
        self._numbers = iter(range(requests))
        self._sent = 0
        self._serving: dict[str, int] = {}
        """Version that new requests get, by adapter."""
        self._weights: dict[int, int] = {}
        """Set of weights by version, for all versions that ever served."""
        self._versions = count(1)
        self._locks = {name: asyncio.Lock() for name in ADAPTERS}
        self._operating: set[asyncio.Task[None]] = set()
        self._kept: list[Baseline] = []
        self._own_tasks: set[asyncio.Task[Any]] = set()
        """Tasks of an idle engine."""
        self._objects_before = _count_objects()
        self._last_line = time.monotonic()

    async def run(self) -> None:
        """Raises `BenchError` for a model that cannot be served or is too small."""
        engine = await self._start_engine()
        try:
            room = await measure_room(engine)
            for place, name in enumerate(ADAPTERS):
                await self._load(engine, name, place)
            await self._soak(engine, room)
            await self._check_idle(engine)
        finally:
            await engine.close()
        await self._repeat()
        self.result.rested = True

    async def _start_engine(self) -> LocalEngine[Any]:
        settings, before = self._settings(), asyncio.all_tasks()
        try:
            engine = build_engine(settings)
            await engine.start()
        except EngineError as error:
            raise BenchError(str(error)) from error
        # A server is watched by tasks that end with the engine.
        self._own_tasks = asyncio.all_tasks() - before
        return cast(LocalEngine[Any], engine)

    def _settings(self) -> ModelSettings:
        places = max(1, self._concurrency // 2)
        if self._kind == "vllm":
            return vllm_settings(
                self._prepared.model, threads=self._threads, places=places,
                adapters=2 * len(ADAPTERS), rank=RANK,
            )  # fmt: skip
        return ModelSettings(
            engine=self._kind,
            model=self._prepared.model,
            threads=self._threads,
            dtype="float32",
            max_concurrency=places,
            max_tokens_in_flight=TOKENS_IN_FLIGHT[self._kind],
        )

    # The requests.

    async def _soak(self, engine: LocalEngine[Any], room: Room) -> None:
        before = engine.totals()
        began = time.perf_counter()
        try:
            await asyncio.gather(
                *(self._send_requests(engine, room) for _ in range(self._concurrency))
            )
            await asyncio.gather(*self._operating)
        finally:
            self.result.seconds = time.perf_counter() - began
            self.result.totals = _totals_since(before, engine.totals())
            self._line()

    async def _send_requests(self, engine: LocalEngine[Any], room: Room) -> None:
        """Send one request after another."""
        share = min(1.0, REPEATS / REPEATABLE / self._requests)
        for index in self._numbers:
            record = Seen(plan_request(index, self._seed, room, share), room.max_context)
            for operation in operations(index, self._seed, SETS):
                task = asyncio.create_task(self._operate(engine, operation))
                self._operating.add(task)
                task.add_done_callback(self._operating.discard)
            self._sent += 1
            await self._ask(engine, record)
            self._note(record)

    async def _ask(self, engine: LocalEngine[Any], record: Seen) -> None:
        """Send a request, and end it early as planned."""
        wanted = record.planned
        began = time.perf_counter()
        reading = asyncio.create_task(self._read(engine, wanted.request(time.time()), record))
        ending = [
            asyncio.create_task(_call_later(seconds, end))
            for seconds, end in (
                (wanted.drop_after, lambda: reading.cancel()),
                (wanted.cancel_after, lambda: engine.cancel(wanted.id)),
            )
            if seconds is not None
        ]
        try:
            done, _ = await asyncio.wait({reading}, timeout=PATIENCE)
            record.ending = record.ending or ("dropped" if done else "unanswered")
            waits = (wanted.drop_after, wanted.cancel_after, wanted.deadline)
            due = min((delay for delay in waits if delay is not None), default=float("inf"))
            record.late = max(0.0, time.perf_counter() - began - max(0.0, due))
        finally:
            for task in (reading, *ending):
                task.cancel()
            await asyncio.gather(reading, *ending, return_exceptions=True)

    async def _read(self, engine: LocalEngine[Any], request: GenerateRequest, record: Seen) -> None:
        """Record the events of a request until its end, or until its planned close."""
        # The engine takes the version in the iterator's first step; nothing runs in between.
        record.version = self._serving.get(request.adapter or "")
        try:
            async with aclosing(engine.submit(request)) as events:
                async for event in events:
                    record.events.append(event)
                    if len(record.events) == record.planned.close_after:
                        record.ending = "closed"
                        return
            record.ending = "done"
        except EngineError as error:
            record.ending, record.message = error.kind, str(error)
        except asyncio.CancelledError:
            record.ending = record.ending or "dropped"
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is an ending
            record.ending, record.message = type(error).__name__, str(error)

    def _note(self, record: Seen) -> None:
        findings = self.result
        findings.sums.add(record)
        findings.add(invariants.check(record))
        findings.latest = max(findings.latest, record.late)
        if record.planned.repeated and record.ending == "done":
            weights = None if record.version is None else self._weights[record.version]
            self._kept.append(Baseline(record.planned, weights, record.completions))
        ended = findings.sums.endings.total()
        if ended % max(1, self._requests // memory.SAMPLES) == 0:
            findings.samples.append(memory.resident_bytes())
        if time.monotonic() - self._last_line >= LINE_SECONDS:
            self._line()

    def _line(self) -> None:
        self._last_line = time.monotonic()
        ended = self.result.sums.endings.total()
        self._progress(
            f"{ended:,} of {self._requests:,} requests ended, {self._sent - ended} in flight, "
            f"{self.result.operations['load']} versions loaded, "
            f"{memory.resident_bytes() / 1e6:,.0f} MB, "
            f"{self.result.rules.total()} violations"
        )

    # The adapters.

    async def _operate(self, engine: LocalEngine[Any], operation: Operation) -> None:
        """Carry out operations, one after another for each adapter."""
        name = operation.adapter
        async with self._locks[name]:
            match operation.kind:
                case "load":
                    serving = self._serving.get(name)
                    same = serving is not None and self._weights[serving] == operation.weights
                    try:
                        await self._load(engine, name, (operation.weights + same) % SETS)
                    except EngineError as error:
                        self.result.add([Violation("adapters", f"loading {name}: {error}")])
                case "load damaged":
                    await self._check_refused(engine, name)
                case "unload":
                    await self._unload(engine, name)
            self.result.operations[operation.kind] += 1

    async def _load(self, engine: LocalEngine[Any], name: str, weights: int) -> None:
        version = next(self._versions)
        await engine.load_adapter(name, str(self._prepared.adapters[weights]), version)
        self._weights[version] = weights
        self._serving[name] = version

    async def _check_refused(self, engine: LocalEngine[Any], name: str) -> None:
        """Check that a damaged adapter is refused, and that the previous version continues to
        serve."""
        try:
            await engine.load_adapter(name, str(self._prepared.damaged), next(self._versions))
        except EngineError as error:
            ending = error.kind
        else:
            ending = "loaded"
        if ending != "bad_request":
            message = f"a damaged adapter {name}: {ending}"
            self.result.add([Violation("adapters", message)])

    async def _unload(self, engine: LocalEngine[Any], name: str) -> None:
        expected = "unloaded" if name in self._serving else "unknown_adapter"
        try:
            await engine.unload_adapter(name)
            self._serving.pop(name, None)
            ending = "unloaded"
        except EngineError as error:
            ending = error.kind
        if ending != expected:
            message = f"unloading {name}: {ending} instead of {expected}"
            self.result.add([Violation("adapters", message)])

    # The end.

    async def _check_idle(self, engine: LocalEngine[Any]) -> None:
        """Check the state when all requests have ended and all adapters are unloaded."""
        findings = self.result
        for name in list(self._serving):
            await self._unload(engine, name)
        left = asyncio.all_tasks() - self._own_tasks - {asyncio.current_task()}
        if self._kind == "vllm" and left:
            # A server unloads an adapter in a request of its own.
            _, left = await asyncio.wait(left, timeout=invariants.GRACE)
        in_use = await engine.in_use()
        tasks = [repr(task.get_coro()) for task in left]
        objects = _count_objects()
        objects.subtract(self._objects_before)
        findings.add(invariants.nothing_left(in_use, tasks, objects))
        findings.add(invariants.every_request_ended(findings.sums, self._sent))
        findings.add(invariants.totals_add_up(findings.sums, findings.totals))
        findings.add(invariants.memory_is_flat(findings.samples, self._requests))

    async def _repeat(self) -> None:
        """Repeat some requests, one at a time, on an engine that has never served another."""
        self._progress(f"repeating {len(self._kept)} requests in quiet")
        engine = await self._start_engine()
        try:
            for weights in (None, *range(SETS)):
                adapter = None if weights is None else f"quiet-{weights}"
                if weights is not None and adapter is not None:
                    await engine.load_adapter(adapter, str(self._prepared.adapters[weights]), 1)
                for baseline in self._kept:
                    if baseline.weights == weights:
                        await self._compare(engine, baseline, adapter)
        finally:
            await engine.close()

    async def _compare(
        self, engine: LocalEngine[Any], baseline: Baseline, adapter: str | None
    ) -> None:
        request = baseline.planned.request(time.time()).model_copy(
            update={"adapter": adapter, "deadline": None, "stream": False}
        )

        async def logprob(ids: Sequence[int]) -> float:
            return (await engine.score(ids, adapter))[-1]

        events = [event async for event in engine.submit(request)]
        quiet = {event.index: event for event in events if isinstance(event, Completion)}
        for answer in baseline.answers:
            comparison = await invariants.compare(answer, quiet[answer.index], logprob)
            self.result.repeated += 1
            self.result.tied += comparison.tied
            self.result.difference = max(self.result.difference, comparison.difference)
            if comparison.problem:
                self.result.add([Violation("as in quiet", comparison.problem, baseline.planned.id)])


async def measure_room(engine: LocalEngine[Any]) -> Room:
    """Measure the length of prompts for this model. Raises `UsageError` if its context is too
    small."""
    context = engine.capabilities.max_context
    if context is None or context < SMALLEST_CONTEXT:
        raise UsageError(
            f"--model: its context of {context} tokens is too small for the prompts of the soak; "
            f"use one of at least {SMALLEST_CONTEXT}"
        )
    lengths: list[int] = []
    for words in (10, 30):
        request = GenerateRequest(
            id=f"measure-{words}",
            messages=(Message(role="user", content=WORD * words),),
            sampling=SamplingParams(max_tokens=1),
        )
        (completion,) = [event async for event in engine.submit(request)]
        lengths.append(len(cast(Completion, completion).prompt_ids))
    per_word = (lengths[1] - lengths[0]) // 20
    return Room(context, lengths[0] - 10 * per_word, per_word)


async def _call_later(seconds: float, end: Callable[[], object]) -> None:
    """Call `end` after this many seconds, and await its result if possible."""
    await asyncio.sleep(seconds)
    result = end()
    if asyncio.iscoroutine(result):
        await result


def _totals_since(before: EngineTotals, now: EngineTotals) -> EngineTotals:
    return EngineTotals(
        now.calls - before.calls,
        now.prompt_tokens - before.prompt_tokens,
        now.completion_tokens - before.completion_tokens,
        now.abandoned_tokens - before.abandoned_tokens,
    )


def _count_objects() -> Counter[str]:
    """Count the objects in this process of each type that belongs to requests."""
    gc.collect()
    kinds = (Job, Row, Ticket, AdapterVersion)
    return Counter(type(item).__name__ for item in gc.get_objects() if type(item) in kinds)

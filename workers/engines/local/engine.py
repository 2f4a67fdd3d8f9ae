"""Models in this process: the event loop's side of an engine. Requests go in, events come out; a
separate thread does the work (see `ModelThread`)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from typing import Any, Generic

from loopline.workers.engines.grammar.compiler import GrammarCompiler, grammar_key
from loopline.workers.engines.grammar.matcher import Matcher
from loopline.workers.engines.in_flight import InFlight, Ticket
from loopline.workers.engines.local.adapters import Adapters, AdapterVersion
from loopline.workers.engines.local.backend import Backend
from loopline.workers.engines.local.model_files import local_folder, model_name, refuse_unreadable
from loopline.workers.engines.local.row import Job
from loopline.workers.engines.local.thread import L, ModelThread
from loopline.workers.engines.protocol import (
    AnswerEvent,
    Capabilities,
    Completion,
    EngineError,
    EngineTotals,
    GenerateRequest,
    Occupancy,
    refuse_call_under_schema,
    refuse_other_version,
    refuse_unsupported,
)
from loopline.workers.engines.settings import ModelSettings


class LocalEngine(Generic[L]):
    """An engine around a backend.

    Determinism: a request that runs alone gets the same tokens every time, greedy or seeded. With
    other requests, the last bits of the logits differ with the batch's shape, so two nearly tied
    tokens may change places (see `sampling`).
    """

    def __init__(self, settings: ModelSettings, backend: type[Backend[L]]) -> None:
        self._settings = settings
        self._base: str | None = None
        self._backend = backend
        self._in_flight = InFlight()
        self._thread: ModelThread[L] | None = None
        self._loaded: L | None = None
        self._grammars: GrammarCompiler | None = None
        self._adapters = Adapters(self._give_back)
        self._calls = self._prompt_tokens = self._completion_tokens = 0

    @property
    def name(self) -> str:
        return self._backend.kind

    @property
    def base(self) -> str:
        if self._base is None:
            self._base = model_name(self._settings.model)  # accesses the file system
        return self._base

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            token_ids=True,
            logprobs=True,
            streaming=True,
            tools=True,
            tool_choice=self._settings.constrain_tools,
            penalties=True,
            template_options=True,
            top_logprobs=True,
            json_schema=True,
            seeds=True,
            score=True,
            adapters=True,
            continuation=True,
            max_context=self._loaded.max_context if self._loaded else None,
        )

    async def start(self) -> None:
        """Load the weights. Raises EngineError: `bad_request` for a model that is missing, unsafe
        or incomplete, `unavailable` (retryable) for an unreachable hub or too little memory."""
        backend = self._backend(self._settings)
        thread = ModelThread(self._settings, asyncio.get_running_loop(), backend)
        loaded = await thread.start()
        self._thread, self._loaded = thread, loaded
        self._grammars = GrammarCompiler(loaded.grammar_tokenizer, loaded.end_ids)

    async def close(self) -> None:
        """Cancel all requests, stop the thread, release the memory."""
        self._in_flight.cancel_all()
        if self._thread is not None:
            await self._thread.stop()
            self._thread = self._loaded = self._grammars = None

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[AnswerEvent, None]:
        """See `Engine.submit`."""
        refuse_unsupported(request, self.capabilities, self.name)
        refuse_call_under_schema(request)
        thread = self._running
        seed = request.sampling.seed
        if seed is None:
            seed = secrets.randbits(63)
        completions: list[Completion] = []
        with (
            self._adapters.use(request.adapter) as adapter,
            self._in_flight.enter(request) as ticket,
        ):
            refuse_other_version(request, 0 if adapter is None else adapter.version)
            job = Job(request, asyncio.Queue(), seed, adapter)
            job.matcher = await self._matcher(request, ticket)
            thread.add(job)
            try:
                with ticket.telling(job.events.put_nowait):
                    while len(completions) < request.sampling.n:
                        event = await job.events.get()
                        if isinstance(event, EngineError):
                            raise event
                        if isinstance(event, Completion):
                            completions.append(event)
                            if len(completions) == request.sampling.n:
                                self._count(completions)
                        yield event
            finally:
                if len(completions) < request.sampling.n:
                    thread.abandon(job)

    async def _matcher(self, request: GenerateRequest, ticket: Ticket) -> Matcher | None:
        """Return a matcher at the beginning of the request's grammar; None without a grammar. A new
        grammar is compiled in a separate thread: a large schema would block the loop, or every
        row."""
        key = grammar_key(request, constrain_tools=self._settings.constrain_tools)
        if key is None or self._grammars is None:
            return None
        matcher = self._grammars.known(key)
        if matcher is None:
            matcher = await ticket.guard(asyncio.to_thread(self._grammars.compile_matcher, key))
        return matcher

    async def cancel(self, request_id: str) -> None:
        self._in_flight.cancel(request_id)

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        """See `Engine.score`; runs between two decoding steps."""
        with self._adapters.use(adapter) as version:
            return await asyncio.wrap_future(self._running.score(ids, version))

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        """See `Engine.load_adapter`."""
        if self._adapters.version(name) == version:
            return
        path, thread = str(local_folder(path, "adapter")), self._running
        with refuse_unreadable(path, "adapter"):
            read = await asyncio.to_thread(thread.backend.read_adapter, path)
        loading = thread.load_adapter(path, read)
        try:
            weights = await asyncio.wrap_future(loading)
        except asyncio.CancelledError:
            # The thread may already be loading and cannot be stopped: the result is released then.
            loading.add_done_callback(lambda future: self._discard(name, version, future))
            raise
        self._adapters.put(AdapterVersion(name, version, weights))

    async def unload_adapter(self, name: str) -> None:
        self._adapters.remove(name)

    def _discard(self, name: str, version: int, loaded: Future[Any]) -> None:
        if not loaded.cancelled() and loaded.exception() is None:
            self._give_back(AdapterVersion(name, version, loaded.result()))

    def _give_back(self, version: AdapterVersion) -> None:
        if self._thread is not None:
            self._thread.unload_adapter(version)

    async def in_use(self) -> dict[str, int]:
        """Resources that requests occupy, by name, and inconsistencies: all zero at rest. Resources
        that the engine keeps on purpose (the prefixes of finished requests, adapters that serve)
        are not included. Read between two decoding steps, after all earlier commands."""
        return {
            "requests": len(self._in_flight),
            **self._adapters.in_use(),
            **await asyncio.wrap_future(self._running.in_use()),
        }

    def totals(self) -> EngineTotals:
        abandoned = self._thread.abandoned_tokens if self._thread else 0
        return EngineTotals(self._calls, self._prompt_tokens, self._completion_tokens, abandoned)

    def occupancy(self) -> Occupancy:
        """See `InProcessEngine.occupancy`. Empty before the start and after the end."""
        thread = self._thread
        return Occupancy(0, 0, 0, None) if thread is None else thread.occupancy()

    def _count(self, completions: Sequence[Completion]) -> None:
        self._calls += 1
        self._prompt_tokens += sum(completion.usage.prompt for completion in completions)
        self._completion_tokens += sum(completion.usage.completion for completion in completions)

    @property
    def _running(self) -> ModelThread[L]:
        if self._thread is None:
            raise EngineError(f"the {self.name} engine is not started", kind="internal")
        return self._thread

"""Models in vLLM-like servers: running servers, or one that the gpu worker starts itself.

Prompts are rendered and tokenized here and sent as token ids; the server returns ids and
log-probabilities. The server's structured outputs enforce calls and schemas, and they are parsed
here, so a server needs no option for them. Adapters are loaded into every server under a name with
their version; if a server has forgotten one, it is loaded again before the server answers with it.

Determinism is that of a batch in `loopline.workers.engines.local.engine`. The same seed produces
the same draws; the last bits of the logits differ with the batch.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import structlog

from loopline.agents.records import JsonObject
from loopline.bus.tasks import end
from loopline.workers.engines.grammar.compiler import grammar_key
from loopline.workers.engines.grammar.tool_grammar import ToolKey
from loopline.workers.engines.in_flight import InFlight
from loopline.workers.engines.local.model_files import (
    find_text_folder,
    model_name,
)
from loopline.workers.engines.local.model_text import ModelText, read_text_files
from loopline.workers.engines.local.row import Job, check_ids
from loopline.workers.engines.openai.address import require_key
from loopline.workers.engines.openai.errors import Refused
from loopline.workers.engines.protocol import (
    AnswerEvent,
    Capabilities,
    Completion,
    EngineError,
    EngineTotals,
    GenerateRequest,
    context_overflow,
    refuse_call_under_schema,
    refuse_other_version,
    refuse_unsupported,
)
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.adapters import ServedWeights
from loopline.workers.engines.vllm.answering import Answering
from loopline.workers.engines.vllm.check import Checked, check_servers
from loopline.workers.engines.vllm.constraint import ServerGrammar, SpecialTokens, constraint
from loopline.workers.engines.vllm.dispatch import Dispatch, prefixes_of
from loopline.workers.engines.vllm.fleet import Fleet
from loopline.workers.engines.vllm.gate import Gate
from loopline.workers.engines.vllm.managed import ManagedServer
from loopline.workers.engines.vllm.server import Reader, Server
from loopline.workers.engines.vllm.sleeping import Sleeper
from loopline.workers.engines.vllm.weights import Servers, Weights

log = structlog.get_logger("loopline.workers.engines.vllm")

_SEED_BITS = 63
_LONG = 8192
"""Characters: a shorter prompt is built in a millisecond or two, and a thread would not start much
sooner on a machine whose cores the server uses."""


class VllmEngine:
    """See the module docstring. Engines for other kinds of servers override these class
    variables."""

    engine_name: ClassVar[str] = "vllm"
    server_class: ClassVar[type[Server]] = Server
    process_class: ClassVar[type[ManagedServer]] = ManagedServer
    exchanges_weights: ClassVar[bool] = False
    """Whether the servers exchange the weights of a whole model in place."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._base: str | None = None
        self._in_flight = InFlight()
        self._slots = asyncio.Semaphore(settings.max_concurrency)
        self._gate = Gate()
        self._weights = Weights(self._gate)
        self._fleet: Fleet | None = None
        self._dispatch: Dispatch | None = None
        self._process: ManagedServer | None = None
        self._sleeper: Sleeper | None = None
        self._text: ModelText | None = None
        self._checked = Checked()
        self._special: SpecialTokens | None = None
        self._calls = self._prompt_tokens = self._completion_tokens = self._abandoned_tokens = 0

    @property
    def name(self) -> str:
        return self.engine_name

    @property
    def base(self) -> str:
        if self._base is None:
            self._base = model_name(self._settings.model)  # accesses the file system
        return self._base

    @property
    def checked(self) -> Checked:
        """What the checks at startup found out about the servers."""
        return self._checked

    @property
    def capabilities(self) -> Capabilities:
        seeds = self._fleet is None or all(server.seeds for server in self._fleet.servers)
        return Capabilities(
            token_ids=True,
            logprobs=True,
            streaming=True,
            tools=True,
            tool_choice=self._holds_tools,
            penalties=True,
            template_options=True,
            top_logprobs=True,
            json_schema=True,
            seeds=seeds,
            score=True,
            adapters=not self._settings.managed or self._settings.serving.max_adapters > 0,
            continuation=seeds,
            max_context=None if self._text is None else self._text.max_context,
        )

    @property
    def _holds_tools(self) -> bool:
        return self._settings.constrain_tools and self._checked.guidance

    async def start(self) -> None:
        """Read the tokenizer, reach a server (or start one), and check what it can be used for.

        Raises EngineError: `bad_request` for unusable files or a server with other weights; `auth`
        for a missing key; `unavailable` (retryable) if no server answers.
        """
        settings = self._settings
        folder, text = await asyncio.to_thread(self._read_files)
        try:
            if settings.serving.gpu_turns is not None:
                self._sleeper = Sleeper(settings.serving.gpu_turns, self._gate)
                await self._sleeper.take()
            if settings.managed:
                self._process = self.process_class(settings, folder, text)
                await self._process.start()
                urls = [self._process.url]
            else:
                urls = [url for url in (settings.base_url, *settings.serving.servers) if url]
            key = self._read_key()
            self._fleet = fleet = Fleet([self.server_class(settings, url, key) for url in urls])
            self._dispatch = Dispatch(settings, fleet, self._process)
            if self._process is not None:
                await self._process.wait_ready()
            await fleet.wait_until_up(settings.serving.start_seconds)
            bounds = [s.max_context - s.reserve for s in fleet.servers if s.max_context is not None]
            self._text = replace(text, max_context=min([text.max_context, *bounds]))
            self._weights.attach(
                Servers(
                    fleet, self._process, self.exchanges_weights, folder, text.base,
                    settings.serving.start_seconds,
                )
            )  # fmt: skip
            self._checked = await check_servers(fleet, self._text, settings, folder)
            if self._sleeper is not None:
                self._sleeper.begin(fleet, self._process)
        except BaseException:
            await self.close()
            raise

    def _read_files(self) -> tuple[Path, ModelText]:
        folder = find_text_folder(self._settings)
        return folder, read_text_files(folder, self._settings)

    def _read_key(self) -> str:
        variable = self._settings.api_key_env
        if variable is None:
            return ""
        return require_key(variable, "the servers' API key", self._settings.model)

    async def close(self) -> None:
        """Cancel all requests, and stop a server that was started here."""
        self._in_flight.cancel_all()
        await self._weights.close()
        fleet, self._fleet = self._fleet, None
        process, self._process = self._process, None
        sleeper, self._sleeper = self._sleeper, None
        if fleet is not None:
            await fleet.close()
        if process is not None:
            await process.stop()
        if sleeper is not None:
            # After the server has exited: until then it uses GPU memory.
            await sleeper.close()

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[AnswerEvent, None]:
        """See `Engine.submit`. Requests that fail before any output, and streams that break, are
        repeated, at another server if one is dead (see `Answering`)."""
        refuse_unsupported(request, self.capabilities, self.name)
        refuse_call_under_schema(request)
        self._require_started()
        with self._in_flight.enter(request) as ticket:
            await ticket.guard(self._gate.opened())
            with self._gate.inside(), self._weights.use(request.adapter) as adapter:
                refuse_other_version(request, 0 if adapter is None else adapter.version)
                await ticket.take(self._slots)
                seed = request.sampling.seed
                job = Job(
                    request,
                    asyncio.Queue(),
                    secrets.randbits(_SEED_BITS) if seed is None else seed,
                    adapter,
                )
                answering = asyncio.create_task(self._answer(job), name=f"answer-{request.id}")
                received: list[Completion] = []
                try:
                    with ticket.telling(job.events.put_nowait):
                        while len(received) < request.sampling.n:
                            event = await job.events.get()
                            if isinstance(event, EngineError):
                                raise event
                            if isinstance(event, Completion):
                                received.append(event)
                            yield event
                finally:
                    self._slots.release()
                    # A request may be cancelled when the server has answered it already.
                    if len(received) == request.sampling.n:
                        self._count(received)
                    else:
                        self._abandoned_tokens += sum(len(row.output_ids) for row in job.rows)
                    await end([answering])

    async def cancel(self, request_id: str) -> None:
        self._in_flight.cancel(request_id)

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        """See `Engine.score`."""
        text = self._require_started()
        await self._gate.opened()
        with self._gate.inside(), self._weights.use(adapter) as version:
            check_ids("score", ids, text)
            if len(ids) > text.max_context:
                raise context_overflow("score", len(ids), text.max_context)
            return await self._score(ids, None if version is None else version.weights)

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        """See `Engine.load_adapter` and `Weights`."""
        self._require_started()
        await self._weights.load(name, path, version)

    async def unload_adapter(self, name: str) -> None:
        await self._weights.unload(name)

    async def in_use(self) -> dict[str, int]:
        """See `LocalEngine.in_use`."""
        load = 0 if self._fleet is None else sum(server.load for server in self._fleet.servers)
        return {"requests": len(self._in_flight), **self._weights.in_use(), "rows": load}

    def totals(self) -> EngineTotals:
        return EngineTotals(
            self._calls, self._prompt_tokens, self._completion_tokens, self._abandoned_tokens
        )

    # One request.

    def _count(self, completions: Sequence[Completion]) -> None:
        self._calls += 1
        self._prompt_tokens += sum(completion.usage.prompt for completion in completions)
        self._completion_tokens += sum(completion.usage.completion for completion in completions)

    async def _answer(self, job: Job) -> None:
        """Put the request's events, or its error, into its queue."""
        try:
            for completion in await self._completions(job):
                job.events.put_nowait(completion)
        except EngineError as error:
            job.events.put_nowait(error)
        except Exception as error:
            log.exception("a request failed", request=job.request.id)
            job.events.put_nowait(EngineError(f"{type(error).__name__}: {error}", kind="internal"))

    async def _completions(self, job: Job) -> list[Completion]:
        request, text = job.request, self._require_started()
        structured = await self._structured(request, text)
        job.matcher = None if structured is None else ServerGrammar()
        if sum(len(message.content) for message in request.messages) > _LONG or request.tools:
            await asyncio.to_thread(job.prepare, text)
        else:
            job.prepare(text)
        answering = Answering(
            job, text.vocabulary, self._checked.processed, self.server_class.counts_filters
        )
        target: ServedWeights | None = None if job.adapter is None else job.adapter.weights

        async def attempt(server: Server, model: str) -> None:
            if any(row.output_ids for row in job.rows):
                job.prepare(text)
            row = job.rows[0]
            body = server.completion_body(
                request, model, row.prompt.ids, limit=row.limit, seed=job.seed % 2**_SEED_BITS,
                structured=structured, end_ids=text.end_ids,
            )  # fmt: skip
            with server.working(len(job.rows), row.prompt.ids, prefixes_of(target)):
                await self._exchange(server, model, body, answering)

        prompt = job.rows[0].prompt.ids
        try:
            await self._require_dispatch().ask(prompt, target, attempt)
        except Refused as error:
            raise _of_constraint(error, request) if structured is not None else error from error
        if self._settings.plain_logprobs:
            for row in job.rows:
                scores = await self._score([*prompt, *row.output_ids], target)
                row.take_logprobs(scores[len(prompt) - 1 :])
        return answering.completions()

    async def _exchange(
        self, server: Server, model: str, body: JsonObject, answering: Answering
    ) -> None:
        request_id = answering.job.request.id
        traceparent = answering.job.request.traceparent
        read: Reader = server.reader(len(answering.rows), model)
        if not answering.job.request.stream:
            raw = await server.complete(body, request_id, traceparent)
            answering.take(read(raw), server, model)
        else:
            async with aclosing(server.stream(body, request_id, traceparent)) as events:
                async for data in events:
                    answering.take(read(data), server, model)
        if not answering.is_whole:
            raise EngineError(
                f"{server.name} did not finish the completion", kind="unavailable", retryable=True
            )

    async def _structured(self, request: GenerateRequest, text: ModelText) -> JsonObject | None:
        key = grammar_key(request, constrain_tools=self._holds_tools)
        if key is None:
            return None
        if isinstance(key, ToolKey) and self._special is None:
            self._special = await asyncio.to_thread(
                lambda: SpecialTokens.of(text.grammar_tokenizer(), text.end_ids)
            )
        return constraint(key, self._special)

    async def _score(self, ids: Sequence[int], target: ServedWeights | None) -> list[float]:
        if len(ids) < 2:
            return []

        async def attempt(server: Server, model: str) -> list[float]:
            with server.working(1, ids, prefixes_of(target)):
                return await server.score(model, ids)

        return await self._require_dispatch().ask(ids, target, attempt)

    def _require_started(self) -> ModelText:
        if self._text is None or self._fleet is None:
            raise EngineError(f"the {self.name} engine is not started", kind="internal")
        return self._text

    def _require_dispatch(self) -> Dispatch:
        if self._dispatch is None:
            raise EngineError(f"the {self.name} engine is not started", kind="internal")
        return self._dispatch


def _of_constraint(error: Refused, request: GenerateRequest) -> EngineError:
    if error.status != 400:
        return error
    what = "JSON schema" if request.json_schema is not None else "parameters of the tools"
    return EngineError(
        f"request {request.id}: the server cannot constrain a completion to its {what}: {error}",
        kind=error.kind,
    )


def engine(settings: ModelSettings) -> Any:
    """Entry point of the factory."""
    return VllmEngine(settings)

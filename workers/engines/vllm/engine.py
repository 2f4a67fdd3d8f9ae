"""Models in vLLM servers, running ones or one that the gpu worker starts itself.

Prompts are rendered and tokenized here and go as token ids; ids and log-probabilities come back.
Calls and schemas are held by the server's structured outputs and read here, so a server needs no
option for them. Adapters are loaded into every server under a name of their version; those that a
server has forgotten are loaded again before it answers with them.

What is and what isn't deterministic: as in a batch of `loopline.workers.engines.local.engine`. The
same seed gives the same draws; the logits differ in their last bits with the batch.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import structlog

from loopline.agents.records import JsonObject
from loopline.bus.tasks import end
from loopline.workers.engines.grammar.compiler import grammar_key
from loopline.workers.engines.grammar.tool_grammar import ToolKey
from loopline.workers.engines.in_flight import InFlight
from loopline.workers.engines.local.adapter_base import BaseWeights
from loopline.workers.engines.local.adapters import Adapters, AdapterVersion
from loopline.workers.engines.local.model_files import (
    find_text_folder,
    model_name,
)
from loopline.workers.engines.local.model_text import ModelText, read_text_files
from loopline.workers.engines.local.row import Job, check_ids
from loopline.workers.engines.openai.address import invalid_key_reason, read_key
from loopline.workers.engines.openai.errors import Refused
from loopline.workers.engines.openai.retry import RetryPolicy
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
from loopline.workers.engines.vllm.adapters import ServedAdapter, read_adapter
from loopline.workers.engines.vllm.answering import Answering
from loopline.workers.engines.vllm.check import Checked, check_servers
from loopline.workers.engines.vllm.constraint import ServerGrammar, SpecialTokens, constraint
from loopline.workers.engines.vllm.fleet import Fleet, NoServer
from loopline.workers.engines.vllm.managed import ManagedServer
from loopline.workers.engines.vllm.server import AdapterForgotten, Server
from loopline.workers.engines.vllm.wire import completion_body, read_part, read_scores, score_body

log = structlog.get_logger("loopline.workers.engines.vllm")

T = TypeVar("T")
_SEED_BITS = 63
_POLL_SECONDS = 0.1


class VllmEngine:
    """See the module."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._policy = RetryPolicy(
            settings.max_attempts, settings.backoff_seconds, settings.max_backoff_seconds
        )
        self._rng = random.Random()
        self._in_flight = InFlight()
        self._slots = asyncio.Semaphore(settings.max_concurrency)
        self._adapters = Adapters(self._give_back)
        self._giving_back: set[asyncio.Task[None]] = set()
        self._fleet: Fleet | None = None
        self._process: ManagedServer | None = None
        self._text: ModelText | None = None
        self._weights: BaseWeights | None = None
        self._checked = Checked()
        self._special: SpecialTokens | None = None
        self._calls = self._prompt_tokens = self._completion_tokens = self._abandoned_tokens = 0

    @property
    def name(self) -> str:
        return "vllm"

    @property
    def base(self) -> str:
        return model_name(self._settings.model)

    @property
    def checked(self) -> Checked:
        """What was learned of the servers at the start."""
        return self._checked

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            token_ids=True,
            logprobs=True,
            streaming=True,
            tools=True,
            tool_choice=self._holds_tools,
            penalties=True,
            top_logprobs=True,
            json_schema=True,
            seeds=True,
            score=True,
            adapters=not self._settings.managed or self._settings.vllm.max_adapters > 0,
            continuation=True,
            max_context=None if self._text is None else self._text.max_context,
        )

    @property
    def _holds_tools(self) -> bool:
        return self._settings.constrain_tools and self._checked.guidance

    async def start(self) -> None:
        """Read the tokenizer, reach a server (or start one), and check what it is good for.

        Raises EngineError: `bad_request` for files that cannot be used here, or a server of other
        weights than they are; `auth` for a key that is not there; `unavailable` (retryable) where
        no server answers.
        """
        settings = self._settings
        folder, text = await asyncio.to_thread(self._read_files)
        if any(folder.glob("*.safetensors")):
            self._weights = BaseWeights(folder)
        try:
            if settings.managed:
                self._process = ManagedServer(settings, folder, text)
                await self._process.start()
                urls = [self._process.url]
            else:
                urls = [url for url in (settings.base_url, *settings.vllm.servers) if url]
            key = self._read_key()
            self._fleet = Fleet([Server(settings, url, key) for url in urls])
            if self._process is not None:
                await self._process.wait_ready()
            await self._fleet.wait_until_up(settings.vllm.start_seconds)
            bounds = [s.max_context for s in self._fleet.servers if s.max_context is not None]
            # One place is left for the token that a pass over a given text has to draw.
            context = min([text.max_context, *(bound - 1 for bound in bounds)])
            self._text = replace(text, max_context=context)
            self._checked = await check_servers(self._fleet, self._text, settings, folder)
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
        key = read_key(variable)
        wrong = invalid_key_reason(key) if key else "is not set"
        if wrong:
            raise EngineError(
                f"{self._settings.model}: the environment variable {variable} {wrong}; put the "
                "servers' API key into it",
                kind="auth",
            )
        return key

    async def close(self) -> None:
        """Cancel all requests, end a server that was started here."""
        self._in_flight.cancel_all()
        await end(self._giving_back)
        fleet, self._fleet = self._fleet, None
        process, self._process = self._process, None
        if fleet is not None:
            await fleet.close()
        if process is not None:
            await process.stop()

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[AnswerEvent, None]:
        """See `Engine.submit`. What fails before anything was shown, and what breaks off, is asked
        for again, of another server where one is dead (see `Answering`)."""
        refuse_unsupported(request, self.capabilities, self.name)
        refuse_call_under_schema(request)
        self._require_started()
        with (
            self._adapters.use(request.adapter) as adapter,
            self._in_flight.enter(request) as ticket,
        ):
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
            left = request.sampling.n
            try:
                with ticket.telling(job.events.put_nowait):
                    while left:
                        event = await job.events.get()
                        if isinstance(event, EngineError):
                            raise event
                        left -= isinstance(event, Completion)
                        yield event
            finally:
                self._slots.release()
                if left:
                    self._abandoned_tokens += sum(len(row.output_ids) for row in job.rows)
                await end([answering])

    async def cancel(self, request_id: str) -> None:
        self._in_flight.cancel(request_id)

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        """See `Engine.score`."""
        text = self._require_started()
        with self._adapters.use(adapter) as version:
            check_ids("score", ids, text)
            if len(ids) > text.max_context:
                raise context_overflow("score", len(ids), text.max_context)
            return await self._score(ids, None if version is None else version.weights)

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        """See `Engine.load_adapter`. Of several servers those that answer have it at once; the
        others before they answer with it."""
        if self._adapters.version(name) == version:
            return
        fleet = self._require_fleet()
        target = await asyncio.to_thread(
            read_adapter, name, version, path, self._base_sha256, self.base
        )
        await asyncio.gather(*(server.greet() for server in fleet.servers if not server.is_up))
        up = [server for server in fleet.servers if server.is_up]
        if not up:
            raise EngineError("no server answers", kind="unavailable", retryable=True)
        await asyncio.gather(*(server.ensure(target.name, target.path) for server in up))
        self._adapters.put(AdapterVersion(name, version, target))

    def _base_sha256(self) -> str | None:
        return None if self._weights is None else self._weights.sha256

    async def unload_adapter(self, name: str) -> None:
        self._adapters.remove(name)

    def _give_back(self, version: AdapterVersion) -> None:
        """Nobody uses this version any more."""
        if self._fleet is None:
            return
        task = asyncio.create_task(self._unload(self._fleet, version.weights))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _unload(self, fleet: Fleet, target: ServedAdapter) -> None:
        names = {version.weights.name for version in self._adapters.serving()}
        if target.name in names:  # it came back meanwhile
            return
        for server in fleet.servers:
            if server.is_up:
                try:
                    await server.unload(target.name)
                except EngineError as error:  # it takes room there, and nothing else
                    log.warning("an adapter stays loaded", adapter=target.name, why=str(error))

    async def in_work(self) -> dict[str, int]:
        """See `LocalEngine.in_work`."""
        load = 0 if self._fleet is None else sum(server.load for server in self._fleet.servers)
        return {"requests": len(self._in_flight), **self._adapters.in_work(), "rows": load}

    def totals(self) -> EngineTotals:
        return EngineTotals(
            self._calls, self._prompt_tokens, self._completion_tokens, self._abandoned_tokens
        )

    # One request.

    async def _answer(self, job: Job) -> None:
        """Puts the request's events, or its error, into its queue."""
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
        await asyncio.to_thread(job.prepare, text)
        answering = Answering(job, text.vocabulary, self._checked.processed)
        target: ServedAdapter | None = None if job.adapter is None else job.adapter.weights

        async def attempt(server: Server, model: str) -> None:
            if any(row.output_ids for row in job.rows):
                job.prepare(text)
            row = job.rows[0]
            body = completion_body(
                request, model, row.prompt.ids,
                limit=row.limit, seed=job.seed % 2**_SEED_BITS, structured=structured,
            )  # fmt: skip
            with server.working(len(job.rows), row.prompt.ids, _prefixes_of(target)):
                await self._exchange(server, model, body, answering)

        prompt = job.rows[0].prompt.ids
        try:
            await self._with_server(prompt, target, attempt)
        except Refused as error:
            raise _of_constraint(error, request) if structured is not None else error from error
        if self._settings.plain_logprobs:
            for row in job.rows:
                scores = await self._score([*prompt, *row.output_ids], target)
                row.take_logprobs(scores[len(prompt) - 1 :])
        completions = answering.completions()
        self._calls += 1
        self._prompt_tokens += len(prompt)
        self._completion_tokens += sum(item.usage.completion for item in completions)
        return completions

    async def _exchange(
        self, server: Server, model: str, body: JsonObject, answering: Answering
    ) -> None:
        request_id = answering.job.request.id
        traceparent = answering.job.request.traceparent
        if not answering.job.request.stream:
            raw = await server.complete(body, request_id, traceparent)
            answering.take(read_part(raw, server.name), server, model)
        else:
            async with aclosing(server.stream(body, request_id, traceparent)) as events:
                async for data in events:
                    answering.take(read_part(data, server.name), server, model)
        if not answering.is_whole:
            raise EngineError(
                f"{server.name} sent no end of the completion", kind="unavailable", retryable=True
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

    async def _score(self, ids: Sequence[int], target: ServedAdapter | None) -> list[float]:
        if len(ids) < 2:
            return []

        async def attempt(server: Server, model: str) -> list[float]:
            with server.working(1, ids, _prefixes_of(target)):
                raw = await server.complete(score_body(model, ids), "score")
            return read_scores(raw, ids, server.name)

        return await self._with_server(ids, target, attempt)

    async def _with_server(
        self,
        prompt: Sequence[int],
        target: ServedAdapter | None,
        attempt: Callable[[Server, str], Awaitable[T]],
    ) -> T:
        """What `attempt` gives of a server, called with it and the model's name there. Tries again
        what may pass, as often as the settings say."""
        fleet, failures = self._require_fleet(), 0
        waiting: float | None = None
        while True:
            server: Server | None = None
            try:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    server = await fleet.choose(prompt, _prefixes_of(target))
                    if target is not None:
                        await server.ensure(target.name, target.path)
                    model = server.model if target is None else target.name
                    return await attempt(server, model)
            except NoServer:
                # A server that is started again takes its time, and no attempt.
                now = time.monotonic()
                waiting = now if waiting is None else waiting
                if self._process is None and now - waiting > self._settings.timeout_seconds:
                    raise
                await self._wait_for_server(fleet)
                continue
            except EngineError as error:
                failure = error
            except TimeoutError:
                failure = EngineError(
                    f"no complete answer within {self._settings.timeout_seconds:g} s",
                    kind="timeout",
                    retryable=True,
                )
                server = None
            if not failure.retryable:
                raise failure
            if server is not None and not _server_answered(failure, target):
                fleet.lost(server, str(failure))
                if self._process is not None:
                    self._process.suspect()
            waiting = None
            failures += 1
            await self._pause(failures, failure)

    async def _pause(self, failures: int, failure: EngineError) -> None:
        """Until the next attempt. Raises where there is none."""
        retry_after = failure.retry_after if isinstance(failure, Refused) else None
        wait = self._policy.wait_seconds(failures, retry_after, self._rng)
        if wait is None:
            raise failure
        log.warning("asked again", failures=failures, seconds=round(wait, 2), why=str(failure))
        await asyncio.sleep(0 if isinstance(failure, AdapterForgotten) else wait)

    async def _wait_for_server(self, fleet: Fleet) -> None:
        if self._process is None:
            await asyncio.sleep(_POLL_SECONDS)
            return
        await self._process.wait_ready()
        for server in fleet.servers:
            server.down_until = 0.0

    def _require_started(self) -> ModelText:
        if self._text is None or self._fleet is None:
            raise EngineError("the vllm engine is not started", kind="internal")
        return self._text

    def _require_fleet(self) -> Fleet:
        if self._fleet is None:
            raise EngineError("the vllm engine is not started", kind="internal")
        return self._fleet


def _prefixes_of(target: ServedAdapter | None) -> str:
    """Beginnings of prompts that were read with other weights are others."""
    return "" if target is None else target.name


def _server_answered(failure: EngineError, target: ServedAdapter | None) -> bool:
    """Whether a failure says that the server is there, and as it was when it was greeted."""
    if isinstance(failure, AdapterForgotten):
        return target is not None
    return isinstance(failure, Refused) or failure.kind not in ("unavailable", "timeout")


def _of_constraint(error: Refused, request: GenerateRequest) -> EngineError:
    if error.status != 400:
        return error
    what = "JSON schema" if request.json_schema is not None else "parameters of the tools"
    return EngineError(
        f"request {request.id}: the server cannot hold a completion to its {what}: {error}",
        kind=error.kind,
    )


def engine(settings: ModelSettings) -> Any:
    """Entry point of the factory."""
    return VllmEngine(settings)

"""The thread that owns a model: takes requests from the event loop, and hands events back.

Nothing else touches the model, its cache or its tokenizer; the event loop never waits for it, so
leases are renewed however long a step takes. What a kind of model does in its turn (admit
waiting requests, decode one token for every row) is its subclass's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from loopline.workers.engines.grammar.matcher import Matcher
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.loaded import Loaded
from loopline.workers.engines.local.model_files import reading, unusable
from loopline.workers.engines.local.row import Row
from loopline.workers.engines.local.sampling import RowSampling, Sampled
from loopline.workers.engines.protocol import (
    AnswerEvent,
    CannotContinue,
    Completion,
    EngineBroken,
    EngineError,
    GenerateRequest,
)
from loopline.workers.engines.request_checks import context_overflow
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import Prompt, build_prompt

_log = logging.getLogger(__name__)

LONGEST_TOKEN = 256
"""Characters: no vocabulary in use has a longer one (128 blanks, in Qwen's and Llama 3's). A text
of more than so many for each token of the context need not be tokenized to be refused."""


L = TypeVar("L", bound=Loaded)


@dataclass(eq=False)
class Job:
    """One request on its way through the thread. `events` belongs to the event loop."""

    request: GenerateRequest
    events: asyncio.Queue[AnswerEvent | EngineError]
    seed: int
    adapter: AdapterVersion | None = None
    matcher: Matcher | None = None
    """At the beginning of the grammar; each row follows a copy of its own."""
    ids: list[int] = field(default_factory=list[int])
    """Prompt, and what is to be continued."""
    rows: list[Row] = field(default_factory=list[Row])
    generated: int = 0


@dataclass
class _Score:
    ids: Sequence[int]
    adapter: AdapterVersion | None
    result: Future[list[float]] = field(default_factory=Future[list[float]])


@dataclass
class _Abandon:
    job: Job


@dataclass
class _Load:
    path: str
    read: Any
    result: Future[Any] = field(default_factory=Future[Any])


@dataclass
class _Unload:
    adapter: AdapterVersion


@dataclass
class _InWork:
    result: Future[dict[str, int]] = field(default_factory=Future[dict[str, int]])


class _Stop:
    pass


_Command = Job | _Score | _Abandon | _Load | _Unload | _InWork | _Stop


class Decoder(ABC, Generic[L]):
    """Start it, feed it jobs from one event loop, stop it."""

    kind: str
    """The engine's name, for its messages."""

    def __init__(self, settings: ModelSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._started: Future[L] = Future()
        self._model: L
        self._waiting: deque[Job] = deque()
        self._outbox: list[tuple[Job, AnswerEvent | EngineError]] = []
        self._thread = threading.Thread(
            target=self._run, name=f"{self.kind}-{settings.model}", daemon=True
        )
        self.abandoned_tokens = 0
        """Tokens of requests that nobody waited for any more; written by the thread alone."""

    # What the event loop calls.

    async def start(self) -> L:
        """Load the model in the thread. Raises what `_load` raises."""
        self._thread.start()
        return await asyncio.wrap_future(self._started)

    async def stop(self) -> None:
        """Let the thread end after its current step; everything in work is dropped."""
        self._commands.put(_Stop())
        await asyncio.to_thread(self._thread.join)

    def add(self, job: Job) -> None:
        self._commands.put(job)

    def abandon(self, job: Job) -> None:
        """Nobody waits for this job any more: it need not be finished."""
        self._commands.put(_Abandon(job))

    def score(self, ids: Sequence[int], adapter: AdapterVersion | None) -> Future[list[float]]:
        score = _Score(ids, adapter)
        self._commands.put(score)
        return score.result

    def read_adapter(self, path: str) -> Any:
        """What can be read of an adapter while rows go on: takes seconds where the base is large,
        and is called in a thread of its own. Raises EngineError `bad_request` for one that says to
        be of other weights."""
        self._model.check_base_of(path)
        return path

    def load_adapter(self, path: str, read: Any) -> Future[Any]:
        """What the decoder makes of the adapter at `path`, of which `read` was read: the weights of
        an `AdapterVersion`."""
        load = _Load(path, read)
        self._commands.put(load)
        return load.result

    def unload_adapter(self, adapter: AdapterVersion) -> None:
        """No request has it any more: give its memory back."""
        self._commands.put(_Unload(adapter))

    def in_work(self) -> Future[dict[str, int]]:
        """The thread's part of `LocalEngine.in_work`."""
        asked = _InWork()
        self._commands.put(asked)
        return asked.result

    # What a subclass does, in the thread.

    @abstractmethod
    def _load(self) -> L:
        """Read the model into memory. Raises EngineError."""

    def _unload(self) -> None:
        """After the last step."""

    def _within(self) -> AbstractContextManager[object]:
        """What every step runs within."""
        return nullcontext()

    @abstractmethod
    def _running(self) -> Sequence[Job]:
        """Jobs in work, each once."""

    @abstractmethod
    def _turn(self) -> None:
        """Admit what waits and there is room for, then decode a token for every row."""

    @abstractmethod
    def _remove(self, jobs: Sequence[Job]) -> None:
        """Take the rows of these jobs out of work, and give back what they hold."""

    @abstractmethod
    def _scored(self, ids: list[int], adapter: AdapterVersion | None) -> list[float]:
        """See `Engine.score`; the ids are checked."""

    @abstractmethod
    def _rows_in_work(self) -> dict[str, int]:
        """See `LocalEngine.in_work`: rows, and what they hold."""

    @abstractmethod
    def _adapter_from(self, read: Any) -> Any:
        """Take an adapter into memory, of what `read_adapter` gave. Raises EngineError."""

    @abstractmethod
    def _forget_adapter(self, adapter: AdapterVersion) -> None:
        """Give back the memory of an adapter, and what was computed with it."""

    def _failure_of(self, error: Exception) -> EngineError:
        """What a requester is told of an exception out of the model's code."""
        _log.error("the %s engine failed", self.kind, exc_info=error)
        return EngineError(f"the model failed: {type(error).__name__}: {error}")

    # The loop.

    def _run(self) -> None:
        try:
            with reading(self._settings.model):
                self._model = self._load()
                try:
                    with self._within():
                        self._check_numbers(None)
                except BaseException:
                    self._unload()
                    raise
        except BaseException as error:  # noqa: BLE001 - it is raised again in `start`
            self._started.set_exception(error)
            return
        self._started.set_result(self._model)
        try:
            with self._within():
                while self._take_commands():
                    self._turn()
                    self._deliver()
        except BaseException as error:  # noqa: BLE001 - told to everybody who waits
            _log.exception("the %s engine's thread can't go on", self.kind)
            failure = EngineBroken(
                f"the {self.kind} engine can't go on: {type(error).__name__}: {error}"
            )
            for job in dict.fromkeys([*self._running(), *self._waiting]):
                self._send(job, failure)
            self._refuse(failure, until_stopped=True)
        else:
            self._refuse(EngineError(f"the {self.kind} engine is closed"), until_stopped=False)
        finally:
            self._unload()

    def _refuse(self, failure: EngineError, *, until_stopped: bool) -> None:
        """After the end: whoever asks is told so and does not wait for ever."""
        self._deliver()
        while until_stopped or not self._commands.empty():
            match self._commands.get():
                case Job() as job:
                    self._send(job, failure)
                    self._deliver()
                case _Score(result=result) | _Load(result=result) | _InWork(result=result):
                    if result.set_running_or_notify_cancel():
                        result.set_exception(failure)
                case _Stop():
                    until_stopped = False
                case _Abandon() | _Unload():
                    continue

    def _take_commands(self) -> bool:
        """Carry out what was asked; sleeps while there is nothing else to do."""
        idle = not self._running() and not self._waiting
        while True:
            try:
                command = self._commands.get(block=idle)
            except queue.Empty:
                return True
            idle = False
            match command:
                case Job():
                    self._waiting.append(command)
                case _Abandon(job=job):
                    # Giving back may need memory itself, and so may fail.
                    self._guarded(lambda job=job: self._drop(job), [job])
                case _Score(result=result, ids=ids, adapter=adapter):
                    self._answer(result, lambda ids=ids, of=adapter: self._score(list(ids), of))
                case _Load(result=result, path=path, read=read):
                    self._answer(
                        result, lambda path=path, read=read: self._checked_adapter(path, read)
                    )
                case _Unload(adapter=adapter):
                    self._forget_adapter(adapter)
                case _InWork(result=result):
                    self._answer(
                        result, lambda: {"waiting": len(self._waiting), **self._rows_in_work()}
                    )
                case _Stop():
                    return False

    def _drop(self, job: Job) -> None:
        if job in self._waiting:
            self._waiting.remove(job)
        self.abandoned_tokens += job.generated
        self._remove([job])

    def _guarded(self, work: Callable[[], None], jobs: Sequence[Job]) -> bool:
        """Run `work`; its failure ends these jobs and not the thread. True if it worked."""
        try:
            work()
            return True
        except EngineError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a model's or a tokenizer's code raises anything
            failure = self._failure_of(error)
        self._fail(jobs, failure)
        return False

    def _fail(self, jobs: Sequence[Job], failure: EngineError) -> None:
        """End these jobs with an error."""
        self._remove(jobs)
        for job in jobs:
            self._send(job, failure)

    def _answer(self, result: Future[Any], work: Callable[[], Any]) -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            result.set_result(work())
        except EngineError as error:
            result.set_exception(error)
        except Exception as error:  # noqa: BLE001 - as in `_guarded`
            result.set_exception(self._failure_of(error))

    def _score(self, ids: list[int], adapter: AdapterVersion | None) -> list[float]:
        self._check_ids("score", ids)
        if len(ids) > self._model.max_context:
            raise context_overflow("score", len(ids), self._model.max_context)
        scores = self._scored(ids, adapter)
        if any(map(math.isnan, scores)):
            raise EngineError("score: the model's logits are not finite (NaN or infinity)")
        return scores

    def _checked_adapter(self, path: str, read: Any) -> Any:
        weights = self._adapter_from(read)
        adapter = AdapterVersion(path, 0, weights)
        try:
            self._check_numbers(adapter)
        except BaseException:
            self._forget_adapter(adapter)
            raise
        return weights

    def _check_numbers(self, adapter: AdapterVersion | None) -> None:
        """Let the model read two tokens: weights with a NaN or an infinity in them are refused when
        they are loaded, before the first request fails of them. Raises EngineError."""
        if any(map(math.isnan, self._scored([0, 1], adapter))):
            name = self._settings.model if adapter is None else adapter.name
            what = "model" if adapter is None else "adapter"
            raise unusable(
                name,
                "what comes of its weights is not finite (NaN or infinity): they are damaged, or "
                "too large for the dtype; try dtype = 'float32'",
                what,
            )

    # What every subclass needs.

    def _prepare(self, job: Job) -> None:
        """Make the prompt and the rows of a job. Raises EngineError."""
        started = time.perf_counter()
        prompt = self._prompt(job.request)
        job.ids = [*prompt.ids, *job.request.resume_ids]
        job.rows = [
            self._row(job, prompt, index, started) for index in range(job.request.sampling.n)
        ]

    def _prompt(self, request: GenerateRequest) -> Prompt:
        try:
            rendered = self._model.render(request.messages, request.tools)
        except Exception as error:  # a template from outside raises what it likes
            raise EngineError(
                f"request {request.id}: the model's chat template refuses the conversation: "
                f"{error}",
                kind="bad_request",
            ) from error
        # A template that loops without an end holds up the thread all the same: nothing bounds it
        # but the process. It comes with the weights, and who chose these trusts it so far.
        if len(rendered) > LONGEST_TOKEN * self._model.max_context:
            raise EngineError(
                f"request {request.id}: the prompt has {len(rendered)} characters, more than the "
                f"model's context of {self._model.max_context} tokens can hold; shorten it",
                kind="context_overflow",
            )
        self._check_ids(request.id, request.resume_ids)
        # Ids that are none of this model's: the conversation began with another one.
        own = all(0 <= token < self._model.vocabulary for token in request.previous_ids)
        prompt = build_prompt(rendered, request.previous_ids if own else (), self._model.codec)
        used = len(prompt.ids) + len(request.resume_ids)
        if used >= self._model.max_context:
            raise context_overflow(request.id, used, self._model.max_context)
        if not prompt.ids:
            raise EngineError(
                f"request {request.id}: the chat template made an empty prompt",
                kind="bad_request",
            )
        self._check_ids(request.id, [max(prompt.ids)])
        return prompt

    def _row(self, job: Job, prompt: Prompt, index: int, started: float) -> Row:
        sampling = job.request.sampling
        return Row(
            request=job.request,
            index=index,
            prompt=prompt,
            sampling=RowSampling(
                sampling.temperature, sampling.top_p, sampling.top_k, job.seed, index
            ),
            limit=min(sampling.max_tokens, self._model.max_context - len(prompt.ids)),
            end_ids=self._model.end_ids,
            codec=self._model.codec,
            started=started,
            adapter=job.adapter,
            matcher=None if job.matcher is None else job.matcher.copy(),
        )

    def _check_ids(self, request_id: str, ids: Sequence[int]) -> None:
        for token in ids:
            if not 0 <= token < self._model.vocabulary:
                raise EngineError(
                    f"request {request_id}: {token} is no token id of {self._model.base!r} "
                    f"(vocabulary of {self._model.vocabulary})",
                    kind="bad_request",
                )

    def _push(self, job: Job, row: Row, sampled: Sampled | None) -> None:
        """Give a row its token and send what comes of it. Raises EngineError if there is none for
        it (see `choose_tokens`) or its grammar cannot go on, and what `_completion` raises."""
        if sampled is None:
            raise EngineError(
                f"request {row.request.id}: the model's logits are not finite (NaN or infinity); "
                "try dtype = 'float32'"
            )
        delta = row.push(sampled)
        if job.request.stream:
            self._send(job, delta)
        if row.finish_reason is not None:
            self._send(job, self._completion(row))

    def _completion(self, row: Row) -> Completion:
        """What is sent of a row that has ended. Raises EngineError."""
        return row.completion()

    def _send(self, job: Job, event: AnswerEvent | EngineError) -> None:
        self._outbox.append((job, event))

    def _deliver(self) -> None:
        """One wake-up of the event loop per step, however many rows have news."""
        if not self._outbox:
            return
        events, self._outbox = self._outbox, []
        try:
            self._loop.call_soon_threadsafe(_put, events)
        except RuntimeError:
            _log.warning(
                "%d events of the %s engine came after the loop's end", len(events), self.kind
            )


def _put(events: list[tuple[Job, AnswerEvent | EngineError]]) -> None:
    for job, event in events:
        job.events.put_nowait(event)


def cannot_continue(row: Row) -> CannotContinue:
    """The refusal of ids to continue from that this row could not have drawn."""
    schema = "" if row.request.json_schema is None else " and this JSON schema"
    tools = " and these tools" if row.matcher is not None and not schema else ""
    return CannotContinue(
        f"request {row.request.id}: the ids to continue from cannot come from this model with "
        f"these sampling parameters{schema}{tools}; ask again from the start"
    )


def new_seed() -> int:
    """For requests without a seed: another one each time."""
    return secrets.randbits(63)

"""The thread that owns a model: admits requests, decodes all rows together, hands out events.

Iteration-level batching: a row leaves with its last token, and a waiting request joins before
the next step. Prompts of similar length that wait together are prefilled together. Nothing else
touches the model, its cache or its tokenizer.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import jinja2
import torch
from transformers import DynamicCache

from workers.engines.chat_prompt import Prompt, build_prompt, template_messages, template_tools
from workers.engines.grammar import Matcher
from workers.engines.kv_batch import KVBatch
from workers.engines.protocol import EngineError, EngineEvent, GenerateRequest
from workers.engines.request_checks import context_overflow
from workers.engines.sampling import RowSampling, choose_tokens, forbid, given_logprobs
from workers.engines.settings import ModelSettings
from workers.engines.torch_loading import LoadedModel, load_model
from workers.engines.torch_row import Row

SCORE_CHUNK = 256
"""Tokens scored per forward pass: bounds the logits in memory to 256 x vocabulary floats."""

PREFILL_TOKENS = 4096
"""Most tokens, padding included, in one prefill: enough to fill the cores, and short enough that
rows in work do not wait long for their next token."""

PADDING = 1.25
"""Prefilling together pays (2.5 times on short prompts) until padding is a fifth of the work."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Job:
    """One request on its way through the thread. `events` belongs to the event loop."""

    request: GenerateRequest
    events: asyncio.Queue[EngineEvent | EngineError]
    seed: int
    matcher: Matcher | None = None
    """At the beginning of the grammar; each row follows a copy of its own."""
    ids: list[int] = field(default_factory=list[int])
    """Prompt, and what is to be continued."""
    rows: list[Row] = field(default_factory=list[Row])
    generated: int = 0


@dataclass
class _Score:
    ids: Sequence[int]
    result: Future[list[float]] = field(default_factory=Future[list[float]])


@dataclass
class _Abandon:
    job: Job


class _Stop:
    pass


_Command = Job | _Score | _Abandon | _Stop


class TorchDecoder:
    """Start it, feed it jobs from one event loop, stop it. See the module."""

    def __init__(self, settings: ModelSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._loaded: Future[LoadedModel] = Future()
        self._waiting: deque[Job] = deque()
        self._rows: list[Row] = []
        self._jobs: list[Job] = []
        """The job of each row, in the order of the batch."""
        self._outbox: list[tuple[Job, EngineEvent | EngineError]] = []
        self._thread = threading.Thread(
            target=self._run, name=f"torch-{settings.model}", daemon=True
        )
        self.abandoned_tokens = 0
        """Tokens of requests that nobody waited for any more; written by the thread alone."""

    async def start(self) -> LoadedModel:
        """Load the model in the thread. Raises what `load_model` raises."""
        self._thread.start()
        return await asyncio.wrap_future(self._loaded)

    async def stop(self) -> None:
        """Let the thread end after its current step; everything in work is dropped."""
        self._commands.put(_Stop())
        await asyncio.to_thread(self._thread.join)

    def add(self, job: Job) -> None:
        self._commands.put(job)

    def abandon(self, job: Job) -> None:
        """Nobody waits for this job any more: it need not be finished."""
        self._commands.put(_Abandon(job))

    def score(self, ids: Sequence[int]) -> Future[list[float]]:
        score = _Score(ids)
        self._commands.put(score)
        return score.result

    def _run(self) -> None:
        torch.set_num_threads(self._settings.threads)
        try:
            loaded = load_model(self._settings)
        except BaseException as error:  # noqa: BLE001 - it is raised again in `start`
            self._loaded.set_exception(error)
            return
        self._model = loaded
        self._batch = KVBatch(loaded.model, loaded.device)
        self._loaded.set_result(loaded)
        try:
            with torch.inference_mode():
                while self._take_commands():
                    self._admit()
                    if self._rows:
                        self._guarded(self._step, list(dict.fromkeys(self._jobs)))
                    self._deliver()
        except BaseException as error:  # noqa: BLE001 - told to everybody who waits
            _log.exception("the torch engine's thread can't go on")
            failure = EngineError(
                f"the torch engine can't go on: {type(error).__name__}: {error}",
                kind="unavailable",
                retryable=True,
            )
            for job in dict.fromkeys([*self._jobs, *self._waiting]):
                self._send(job, failure)
            self._refuse(failure, until_stopped=True)
        else:
            self._refuse(EngineError("the torch engine is closed"), until_stopped=False)

    def _refuse(self, failure: EngineError, *, until_stopped: bool) -> None:
        """After the end: whoever asks is told so and does not wait for ever."""
        self._deliver()
        while until_stopped or not self._commands.empty():
            match self._commands.get():
                case Job() as job:
                    self._send(job, failure)
                    self._deliver()
                case _Score() as score:
                    score.result.set_exception(failure)
                case _Stop():
                    until_stopped = False
                case _Abandon():
                    continue

    def _take_commands(self) -> bool:
        """Carry out what was asked; sleeps while there is nothing else to do."""
        idle = not self._rows and not self._waiting
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
                    # Whose rows are left is copied into a smaller cache: that needs memory too.
                    self._guarded(lambda job=job: self._drop(job), [job])
                case _Score():
                    self._score(command)
                case _Stop():
                    return False

    def _admit(self) -> None:
        """Prefill waiting requests, first come first served, while rows are free. A request
        with more completions than there are rows runs alone."""
        group: list[Job] = []
        while self._waiting:
            job = self._waiting[0]
            busy = len(self._rows) + sum(each.request.sampling.n for each in group)
            if busy and busy + job.request.sampling.n > self._settings.max_concurrency:
                break
            self._waiting.popleft()
            if not self._guarded(lambda job=job: self._prepare(job), [job]):
                continue
            if group and not _worth_padding([*group, job]):
                self._guarded(lambda jobs=group: self._begin(jobs), group)
                group = []
            group.append(job)
        if group:
            self._guarded(lambda: self._begin(group), group)

    def _prepare(self, job: Job) -> None:
        started = time.perf_counter()
        prompt = self._prompt(job.request)
        job.ids = [*prompt.ids, *job.request.resume_ids]
        job.rows = [
            self._row(job, prompt, index, started) for index in range(job.request.sampling.n)
        ]

    def _begin(self, group: list[Job]) -> None:
        """Prefill a group together, and give each of its rows its first token. A request to be
        continued comes alone."""
        resumed = list(group[0].request.resume_ids)
        prefill = self._batch.prefill([job.ids for job in group], keep=len(resumed) + 1)
        if resumed:
            (job,) = group
            job.generated = len(resumed)
            self._resume(job.rows[0], prefill.logits[0, :-1], resumed)
            if job.rows[0].finish_reason is not None:
                self._finish(job, job.rows[0])
                return
        rows = [(row, job) for job in group for row in job.rows]
        copies = [len(job.rows) for job in group]
        logits = prefill.logits[:, -1].repeat_interleave(
            torch.tensor(copies, device=prefill.logits.device), dim=0
        )
        tokens, logprobs = _choose(logits, [row for row, _ in rows])
        self._batch.join(prefill, copies)
        first = len(self._rows)
        self._rows.extend(row for row, _ in rows)
        self._jobs.extend(job for _, job in rows)
        self._push(range(first, len(self._rows)), tokens, logprobs)

    def _step(self) -> None:
        logits = self._batch.step([row.output_ids[-1] for row in self._rows])
        tokens, logprobs = _choose(logits, self._rows)
        self._push(range(len(self._rows)), tokens, logprobs)

    def _push(self, places: Sequence[int], tokens: list[int], logprobs: list[float]) -> None:
        """Give each of these rows its token; finished rows leave the batch, and so do those of
        a request whose grammar fails."""
        failed: set[Job] = set()
        for place, token, logprob in zip(places, tokens, logprobs, strict=True):
            row, job = self._rows[place], self._jobs[place]
            job.generated += 1
            if job in failed:
                continue
            try:
                delta = row.push(token, logprob)
            except EngineError as error:
                failed.add(job)
                self._send(job, error)
                continue
            if job.request.stream:
                self._send(job, delta)
            if row.finish_reason is not None:
                self._finish(job, row)
        self._keep(lambda row, job: row.finish_reason is None and job not in failed)

    def _finish(self, job: Job, row: Row) -> None:
        self._send(job, row.completion())

    def _keep(self, wanted: Callable[[Row, Job], bool]) -> None:
        pairs = zip(self._rows, self._jobs, strict=True)
        places = [place for place, pair in enumerate(pairs) if wanted(*pair)]
        if len(places) < len(self._rows):
            self._batch.keep(places)
            self._rows = [self._rows[place] for place in places]
            self._jobs = [self._jobs[place] for place in places]

    def _drop(self, job: Job) -> None:
        if job in self._waiting:
            self._waiting.remove(job)
        self.abandoned_tokens += job.generated
        self._keep(lambda _, other: other is not job)

    def _guarded(self, work: Callable[[], None], jobs: list[Job]) -> bool:
        """Run `work`; its failure ends these jobs and not the thread. True if it worked."""
        try:
            work()
            return True
        except EngineError as error:
            failure = error
        except torch.OutOfMemoryError as error:
            failure = _out_of_memory(error)
        except Exception as error:  # noqa: BLE001 - a model's or a tokenizer's code raises anything
            if "can't allocate memory" in str(error) or "out of memory" in str(error):
                failure = _out_of_memory(error)
            else:
                _log.exception("the torch engine failed")
                failure = EngineError(f"the model failed: {type(error).__name__}: {error}")
        if len(self._batch) != len(self._rows):
            # The cache was lost with it: no row can go on.
            jobs = list(dict.fromkeys([*jobs, *self._jobs]))
            self._batch.clear()
            self._rows, self._jobs = [], []
        self._keep(lambda _, job: job not in jobs)
        for job in jobs:
            self._send(job, failure)
        return False

    def _prompt(self, request: GenerateRequest) -> Prompt:
        try:
            rendered: Any = self._model.tokenizer.apply_chat_template(
                template_messages(request.messages, self._model.control_tokens),
                tools=template_tools(request.tools),
                add_generation_prompt=True,
                tokenize=False,
            )
        except jinja2.TemplateError as error:
            raise EngineError(
                f"request {request.id}: the model's chat template refuses the conversation: "
                f"{error}",
                kind="bad_request",
            ) from error
        self._check_ids(request.id, [*request.previous_ids, *request.resume_ids])
        prompt = build_prompt(str(rendered), request.previous_ids, self._model.codec)
        used = len(prompt.ids) + len(request.resume_ids)
        if used >= self._model.max_context:
            raise context_overflow(request.id, used, self._model.max_context)
        if not prompt.ids:
            raise EngineError(
                f"request {request.id}: the chat template made an empty prompt",
                kind="bad_request",
            )
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
            matcher=None if job.matcher is None else job.matcher.copy(),
        )

    def _resume(self, row: Row, logits: torch.Tensor, resumed: list[int]) -> None:
        """Take over tokens that another worker has streamed; nothing is shown a second time."""
        for place, token in enumerate(resumed):
            here = forbid(logits[place : place + 1], [row.allowed])
            (logprob,) = given_logprobs(here, row.sampling, [token])
            if logprob == float("-inf") or row.finish_reason is not None:
                schema = "" if row.matcher is None else " and this JSON schema"
                raise EngineError(
                    f"request {row.request.id}: the ids to continue from cannot come from this "
                    f"model with these sampling parameters{schema}; ask again from the start",
                    kind="bad_request",
                )
            row.push(token, logprob)

    def _score(self, score: _Score) -> None:
        if not score.result.set_running_or_notify_cancel():
            return
        try:
            score.result.set_result(self._scored(list(score.ids)))
        except EngineError as error:
            score.result.set_exception(error)
        except torch.OutOfMemoryError as error:
            score.result.set_exception(_out_of_memory(error))
        except (RuntimeError, ValueError, TypeError) as error:
            score.result.set_exception(EngineError(f"the model failed: {error}"))

    def _scored(self, ids: list[int]) -> list[float]:
        self._check_ids("score", ids)
        if len(ids) > self._model.max_context:
            raise context_overflow("score", len(ids), self._model.max_context)
        cache = DynamicCache()
        result: list[float] = []
        for start in range(0, len(ids) - 1, SCORE_CHUNK):
            chunk = ids[start : min(start + SCORE_CHUNK, len(ids) - 1)]
            tokens = torch.tensor([chunk], device=self._model.device)
            logits = self._model.model(
                input_ids=tokens, past_key_values=cache, use_cache=True
            ).logits[0]
            targets = torch.tensor(ids[start + 1 : start + 1 + len(chunk)], device=logits.device)
            known = logits.float().log_softmax(dim=-1)
            result.extend(known.gather(-1, targets[:, None])[:, 0].tolist())
        return result

    def _check_ids(self, request_id: str, ids: Sequence[int]) -> None:
        for token in ids:
            if not 0 <= token < self._model.vocabulary:
                raise EngineError(
                    f"request {request_id}: {token} is no token id of {self._model.base!r} "
                    f"(vocabulary of {self._model.vocabulary})",
                    kind="bad_request",
                )

    def _send(self, job: Job, event: EngineEvent | EngineError) -> None:
        self._outbox.append((job, event))

    def _deliver(self) -> None:
        """One wake-up of the event loop per step, however many rows have news."""
        if not self._outbox:
            return
        events, self._outbox = self._outbox, []
        try:
            self._loop.call_soon_threadsafe(_put, events)
        except RuntimeError:
            _log.warning("%d events of the torch engine came after the loop's end", len(events))


def _put(events: list[tuple[Job, EngineEvent | EngineError]]) -> None:
    for job, event in events:
        job.events.put_nowait(event)


def _choose(logits: torch.Tensor, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
    """See `choose_tokens`: the next token of each row, of those that its grammar allows."""
    return choose_tokens(
        forbid(logits, [row.allowed for row in rows]),
        [row.sampling for row in rows],
        [len(row.output_ids) for row in rows],
    )


def _worth_padding(group: Sequence[Job]) -> bool:
    lengths = [len(job.ids) for job in group]
    padded = max(lengths) * len(lengths)
    alone = any(job.request.resume_ids for job in group)
    return not alone and padded <= min(PREFILL_TOKENS, PADDING * sum(lengths))


def new_seed() -> int:
    """For requests without a seed: another one each time."""
    return secrets.randbits(63)


def _out_of_memory(error: BaseException) -> EngineError:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    failure = EngineError(
        "out of memory while decoding; lower max_concurrency or max_tokens of this pool",
        kind="unavailable",
        retryable=True,
    )
    failure.__cause__ = error
    return failure

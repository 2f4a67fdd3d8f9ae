"""Decodes with a model of transformers: all rows together, one token a step.

Iteration-level batching: a row leaves with its last token, and a waiting request joins before
the next step. A prompt that begins like one in memory is read from behind that beginning on, and
prompts of which similarly much is left to read are read together.

When memory runs out, the youngest rows are set back and read in again when others have ended, and
fewer are let in for a while. Only what does not fit alone is refused.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from transformers import DynamicCache

from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.decoder import Decoder, Job, cannot_continue
from loopline.workers.engines.local.model_files import is_out_of_memory
from loopline.workers.engines.local.prefixes import common_prefix, shares_more
from loopline.workers.engines.local.row import Row
from loopline.workers.engines.local.sampling import (
    Sampled,
    choose_tokens,
    given_token,
    raw_logprobs,
)
from loopline.workers.engines.local.whole_model import holds_whole_model
from loopline.workers.engines.protocol import Completion, EngineError
from loopline.workers.engines.torch.kv_batch import KVBatch
from loopline.workers.engines.torch.kv_cache import States
from loopline.workers.engines.torch.loading import LoadedModel, load_model
from loopline.workers.engines.torch.lora import Lora, LoraLayers
from loopline.workers.engines.torch.prefix_cache import PrefixCache
from loopline.workers.engines.torch.whole_models import WholeModel, WholeModels, read_whole_model

SCORE_CHUNK = 256
"""Tokens scored, or taken over from another worker, per forward pass: bounds the logits in memory
to 256 x vocabulary floats."""

PREFILL_TOKENS = 4096
"""Most tokens, padding included, in one prefill: enough to fill the cores, and short enough that
rows in work do not wait long for their next token."""

PADDING = 1.25
"""Prefilling together pays (2.5 times on short prompts) until padding is a fifth of the work."""

WORTH_REUSING = 16
"""Tokens of a beginning that are worth a copy instead of being computed again. A prompt waits for
the reading of another one that has so many tokens more in common with it than any in memory."""

KEPT_TOKENS = 8192
"""Of finished sequences, kept for prompts that begin like them: those of some twenty requests, so
that the roles' prompts stay. Never more than a quarter of max_tokens_in_flight."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """A waiting request that is about to be read, and what is in memory of its prompt."""

    job: Job
    known: States
    length: int
    """Tokens that are in memory."""

    @property
    def fresh(self) -> int:
        """Tokens to be computed."""
        return len(self.job.ids) - self.length


class TorchDecoder(Decoder[LoadedModel]):
    """See the module, and `Decoder`."""

    kind = "torch"

    def _load(self) -> LoadedModel:
        torch.set_num_threads(self._settings.threads)
        loaded = load_model(self._settings)
        self._batch = KVBatch(loaded.model, loaded.device)
        bound = self._settings.max_tokens_in_flight
        self._prefixes = PrefixCache(KEPT_TOKENS if bound is None else min(KEPT_TOKENS, bound // 4))
        self._loras = LoraLayers(loaded.model, loaded.device)
        self._models = WholeModels(loaded.model, loaded.device)
        self._rows: list[Row] = []
        self._jobs: list[Job] = []
        """The job of each row, in the order of the batch."""
        self._parked: deque[tuple[Row, Job]] = deque()
        """Rows that were set back for want of memory, the oldest first."""
        self._places = self._settings.max_concurrency
        """Rows that are let in now."""
        self._ended = 0
        """Rows that ended since the number of places was changed."""
        return loaded

    def _within(self) -> AbstractContextManager[object]:
        return torch.inference_mode()

    def _running(self) -> Sequence[Job]:
        return list(dict.fromkeys([*self._jobs, *(job for _, job in self._parked)]))

    def _turn(self) -> None:
        self._admit()
        if self._rows:
            jobs = list(dict.fromkeys(self._jobs))
            self._guarded(lambda: self._within_memory(self._step), jobs)

    def _remove(self, jobs: Sequence[Job]) -> None:
        self._parked = deque(each for each in self._parked if each[1] not in jobs)
        self._keep([job not in jobs for job in self._jobs])

    def _admit(self) -> None:
        """Read waiting requests, first come, first served, while there is room; rows that were
        set back come before all others."""
        while self._parked and (not self._rows or self._room_for([self._parked[0][0]])):
            job = self._parked[0][1]
            self._guarded(lambda: self._within_memory(self._go_on, joining=1), [job])
        while not self._parked and (group := self._next_group()):
            jobs = [reading.job for reading in group]
            self._guarded(
                lambda group=group, jobs=jobs: self._begin_within_memory(group, jobs), jobs
            )

    def _begin_within_memory(self, group: list[Reading], jobs: list[Job]) -> None:
        rows = sum(len(job.rows) for job in jobs)
        self._within_memory(lambda: self._begin(group), joining=rows, group=jobs)

    def _next_group(self) -> list[Reading]:
        """Waiting requests to be read together. One of which much will be in memory when another
        one of them has been read lets those behind it pass."""
        group: list[Reading] = []
        passed: list[Job] = []
        while self._waiting:
            job = self._waiting.popleft()
            if not job.rows and not self._guarded(lambda job=job: self._prepare(job), [job]):
                continue
            ahead = [*(reading.job for reading in group), *passed]
            # A request that is more than there is room for runs alone.
            alone = not self._rows and not ahead
            if not alone and not self._room_for([r for each in (*ahead, job) for r in each.rows]):
                passed.append(job)
                break
            reading = self._reading(job)
            if _is_about_to_be_read(reading, group):
                passed.append(job)
            elif group and not _worth_padding([*group, reading]):
                passed.append(job)
                break
            else:
                group.append(reading)
        self._waiting.extendleft(reversed(passed))
        return group

    def _room_for(self, new: Sequence[Row]) -> bool:
        """Whether these may join."""
        rows = [*self._rows, *new]
        bound = self._settings.max_tokens_in_flight
        longest = max(len(row.prompt.ids) + row.limit for row in rows)
        fits = bound is None or len(rows) * longest <= bound - self._prefixes.budget
        return fits and len(rows) <= self._places

    def _reading(self, job: Job) -> Reading:
        # Logits are needed from the prompt's last token on.
        beginning = job.rows[0].prompt.ids[:-1]
        known, length = self._prefixes.longest(job.adapter, beginning, WORTH_REUSING - 1)
        place = None
        for at, other in enumerate(self._jobs):
            if other.adapter is job.adapter and shares_more(other.ids, beginning, length):
                place, length = at, common_prefix(other.ids, beginning)
        if place is not None:
            known = self._batch.states(place, length)
        return Reading(job, known, length if known else 0)

    def _begin(self, group: list[Reading]) -> None:
        """Read a group together, and give each of its rows its first token. A request to be
        continued comes alone."""
        jobs = [reading.job for reading in group]
        self._use([job.adapter for job in jobs])
        logits = self._batch.read(
            [job.rows[0].prompt.ids for job in jobs],
            [reading.known for reading in group],
            [len(job.rows) for job in jobs],
        )
        first = len(self._rows)
        for reading in group:
            reading.job.rows[0].cached = reading.length
            self._rows.extend(reading.job.rows)
            self._jobs.extend(reading.job for _ in reading.job.rows)
        if jobs[0].request.resume_ids:
            (job,) = jobs
            logits = self._resume(job, logits)
            if job.rows[0].finish_reason is not None:
                self._send(job, self._completion(job.rows[0]))
                self._remove([job])
                return
        copies = torch.tensor([len(job.rows) for job in jobs], device=logits.device)
        chosen = _choose(logits.repeat_interleave(copies, dim=0), self._rows[first:])
        self._push_all(range(first, len(self._rows)), chosen)

    def _go_on(self) -> None:
        """Read the row that was set back first in again, and give it its next token."""
        row, job = self._parked[0]
        self._use([job.adapter])
        logits = self._batch.read([[*row.prompt.ids, *row.output_ids]], [[]], [1])
        self._parked.popleft()
        self._rows.append(row)
        self._jobs.append(job)
        chosen = _choose(logits, [row])
        self._push_all([len(self._rows) - 1], chosen)

    def _step(self) -> None:
        self._use([row.adapter for row in self._rows])
        logits = self._batch.step([row.output_ids[-1] for row in self._rows])
        chosen = _choose(logits, self._rows)
        self._push_all(range(len(self._rows)), chosen)

    def _push_all(self, places: Sequence[int], chosen: list[Sampled | None]) -> None:
        """Give each of these rows its token; finished rows leave the batch, and so do those of
        a request whose grammar or numbers fail."""
        failed: list[Job] = []
        for place, sampled in zip(places, chosen, strict=True):
            job = self._jobs[place]
            job.generated += 1
            if sampled is None:
                self._batch.wipe_row(place)
            if job not in failed:
                try:
                    self._push(job, self._rows[place], sampled)
                except EngineError as error:
                    failed.append(job)
                    self._send(job, error)
                if self._rows[place].finish_reason is not None:
                    self._remember(place)
                    self._one_ended()
        self._keep(
            [
                row.finish_reason is None and job not in failed
                for row, job in zip(self._rows, self._jobs, strict=True)
            ]
        )

    def _keep(self, wanted: Sequence[bool]) -> None:
        """Let the other rows leave. The last rows take the places that become free: so only they
        are copied."""
        count = sum(wanted)
        if count == len(self._rows):
            return
        movers = deque(place for place in range(count, len(self._rows)) if wanted[place])
        places = [place if wanted[place] else movers.popleft() for place in range(count)]
        self._batch.keep(places)
        self._rows = [self._rows[place] for place in places]
        self._jobs = [self._jobs[place] for place in places]

    def _remember(self, place: int) -> None:
        """Keep what was computed for a finished row, for prompts that begin like it."""
        row, computed = self._rows[place], self._batch.computed(place)
        tokens = [*row.prompt.ids, *row.output_ids][:computed]
        try:
            self._prefixes.put(row.adapter, tokens, lambda: self._batch.states(place, computed))
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            self._prefixes.clear()

    def _within_memory(
        self, work: Callable[[], None], *, joining: int = 0, group: Sequence[Job] = ()
    ) -> None:
        """Run `work`, with which so many rows join, those of a `group` for the first time; set rows
        back if memory runs out. Raises EngineError if there was but one request."""
        tried, requests = len(self._rows) + joining, {*self._jobs, *group}
        try:
            work()
            return
        except Exception as error:  # a driver has its own types for it
            if not _is_out_of_memory(error):
                raise
            said = " ".join(str(error).split())[:200]
        # Not within the except clause: the error's traceback holds what the pass has allocated.
        self._prefixes.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if tried == 1 or (group and len(requests) == 1):
            raise EngineError(
                f"out of memory: this request does not fit, not even alone ({said}); lower "
                "max_context or max_tokens of this pool",
                kind="unavailable",
                retryable=True,
            )
        self._back_off(tried, joining, group, said)

    def _back_off(self, tried: int, joining: int, group: Sequence[Job], said: str) -> None:
        """Let in half as many rows as were tried, and set back those that there is no room for:
        the ones that were about to join, else the youngest ones."""
        self._places, self._ended = max(1, tried // 2), 0
        if len(self._batch) == len(self._rows):
            # Memory may have run out behind the pass, in the choice: then a row's last token is in
            # the cache, and the next step would feed it a second time.
            self._batch.cut([len(row.prompt.ids) + len(row.output_ids) - 1 for row in self._rows])
            self._remove(group)
            staying = len(self._rows) if joining else self._places
        else:  # the cache was lost with it
            self._batch.clear()
            staying = 0
        by_age = sorted(range(len(self._rows)), key=lambda place: self._rows[place].started)
        back = [(self._rows[place], self._jobs[place]) for place in by_age[staying:]]
        self._parked.extendleft(reversed([each for each in back if each[1] not in group]))
        if staying:
            stays = set(by_age[:staying])
            self._keep([place in stays for place in range(len(self._rows))])
        else:
            self._rows, self._jobs = [], []
        for job in group:
            job.rows, job.generated = [], 0  # to be prepared anew
        self._waiting.extendleft(reversed(group))
        self._batch.wipe()
        _log.warning(
            "%s: out of memory with %d rows of %s (%s): %d set back, at most %d at once for now",
            self.kind, tried, self._model.base, said, tried - len(self._rows), self._places,
        )  # fmt: skip

    def _one_ended(self) -> None:
        """One row more is tried whenever as many have ended as there are places."""
        self._ended += 1
        if self._ended >= self._places:
            self._places = min(self._places + 1, self._settings.max_concurrency)
            self._ended = 0

    def _fail(self, jobs: Sequence[Job], failure: EngineError) -> None:
        if len(self._batch) != len(self._rows):
            # The cache was lost with it: no row can go on.
            jobs = list(dict.fromkeys([*jobs, *self._jobs]))
            self._batch.clear()
            self._rows, self._jobs = [], []
        super()._fail(jobs, failure)
        self._batch.wipe()

    def _failure_of(self, error: Exception) -> EngineError:
        if _is_out_of_memory(error):
            self._prefixes.clear()
            return _out_of_memory(error)
        return super()._failure_of(error)

    def _resume(self, job: Job, logits: torch.Tensor) -> torch.Tensor:
        """Let the last row take over tokens that another worker has streamed; nothing is shown a
        second time. Returns the logits [1, vocabulary] after them, of those after its prompt."""
        (row,) = job.rows
        for start in range(len(row.prompt.ids), len(job.ids), SCORE_CHUNK):
            given = job.ids[start : start + SCORE_CHUNK]
            following = self._batch.extend(job.ids[: start + len(given)])
            for place, token in enumerate(given):
                here = following[place - 1 : place] if place else logits
                sampled = given_token(here, row.allowed, row.sampling, token)
                if sampled is None or row.finish_reason is not None:
                    raise cannot_continue(row)
                row.push(sampled)
            job.generated += len(given)
            logits = following[-1:].clone()  # the rest of them is given back
        return logits

    def _completion(self, row: Row) -> Completion:
        if self._settings.plain_logprobs:
            try:
                row.take_logprobs(self._plain_logprobs(row))
            except RuntimeError as error:
                # Only this request ends: the others' tokens are chosen already.
                raise self._failure_of(error) from error
        return row.completion()

    def _plain_logprobs(self, row: Row) -> list[float]:
        """[output]: in one pass over prompt and output, alone and without a cache."""
        self._use([row.adapter])
        ids = torch.tensor([[*row.prompt.ids, *row.output_ids]], device=self._model.device)
        kept = len(row.output_ids) + 1
        logits = self._model.model(input_ids=ids, use_cache=False, logits_to_keep=kept).logits[0]
        result: list[float] = []
        for start in range(0, len(row.output_ids), SCORE_CHUNK):
            tokens = row.output_ids[start : start + SCORE_CHUNK]
            result.extend(raw_logprobs(logits[start : start + len(tokens)], tokens))
        return result

    def _scored(self, ids: list[int], adapter: AdapterVersion | None) -> list[float]:
        self._use([adapter])
        cache = DynamicCache()
        result: list[float] = []
        for start in range(0, len(ids) - 1, SCORE_CHUNK):
            chunk = ids[start : min(start + SCORE_CHUNK, len(ids) - 1)]
            tokens = torch.tensor([chunk], device=self._model.device)
            logits = self._model.model(
                input_ids=tokens, past_key_values=cache, use_cache=True
            ).logits[0]
            result.extend(raw_logprobs(logits, ids[start + 1 : start + 1 + len(chunk)]))
        return result

    def _rows_in_work(self) -> dict[str, int]:
        return {"rows": len(self._rows), "rows in the cache": len(self._batch)}

    def read_adapter(self, path: str) -> str | WholeModel:
        """See `Decoder.read_adapter`; of a whole model, everything."""
        if holds_whole_model(path):
            return read_whole_model(path, self._model, self._models.own)
        return super().read_adapter(path)

    def _adapter_from(self, read: str | WholeModel) -> Lora | WholeModel:
        return read if isinstance(read, WholeModel) else self._loras.read(read)

    def _forget_adapter(self, adapter: AdapterVersion) -> None:
        """What was computed with it goes; its tensors go with the last reference to them, and the
        last pass may have left one here."""
        self._prefixes.forget(adapter)
        self._use([None])

    def _use(self, adapters: Sequence[AdapterVersion | None]) -> None:
        """What each row of the passes that come now is computed with."""
        weights: list[Lora | WholeModel | None] = [each and each.weights for each in adapters]
        self._models.use([each if isinstance(each, WholeModel) else None for each in weights])
        self._loras.use([each if isinstance(each, Lora) else None for each in weights])


def _choose(logits: torch.Tensor, rows: Sequence[Row]) -> list[Sampled | None]:
    """See `choose_tokens`."""
    return choose_tokens(
        logits,
        [row.allowed for row in rows],
        [row.sampling for row in rows],
        [len(row.output_ids) for row in rows],
    )


def _worth_padding(group: Sequence[Reading]) -> bool:
    lengths = [reading.fresh for reading in group]
    padded = max(lengths) * len(lengths)
    alone = any(reading.job.request.resume_ids for reading in group)
    return not alone and padded <= min(PREFILL_TOKENS, PADDING * sum(lengths))


def _is_about_to_be_read(reading: Reading, group: Sequence[Reading]) -> bool:
    """Whether so much more of its beginning will be in memory when the group has been read."""
    beginning = reading.job.rows[0].prompt.ids[:-1]
    return any(
        other.job.adapter is reading.job.adapter
        and shares_more(other.job.ids, beginning, reading.length + WORTH_REUSING - 1)
        for other in group
    )


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error)


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

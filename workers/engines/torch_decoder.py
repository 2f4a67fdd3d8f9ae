"""Decodes with a model of transformers: all rows together, one token a step.

Iteration-level batching: a row leaves with its last token, and a waiting request joins before
the next step. Prompts of similar length that wait together are prefilled together.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from transformers import DynamicCache

from workers.engines.adapters import AdapterVersion
from workers.engines.decoder import Decoder, Job, cannot_continue
from workers.engines.kv_batch import KVBatch
from workers.engines.protocol import EngineError
from workers.engines.row import Row
from workers.engines.sampling import choose_tokens, forbid, given_logprobs
from workers.engines.torch_loading import LoadedModel, load_model
from workers.engines.torch_lora import Lora, LoraLayers

SCORE_CHUNK = 256
"""Tokens scored per forward pass: bounds the logits in memory to 256 x vocabulary floats."""

PREFILL_TOKENS = 4096
"""Most tokens, padding included, in one prefill: enough to fill the cores, and short enough that
rows in work do not wait long for their next token."""

PADDING = 1.25
"""Prefilling together pays (2.5 times on short prompts) until padding is a fifth of the work."""

_log = logging.getLogger(__name__)


class TorchDecoder(Decoder[LoadedModel]):
    """See the module, and `Decoder`."""

    kind = "torch"

    def _load(self) -> LoadedModel:
        torch.set_num_threads(self._settings.threads)
        loaded = load_model(self._settings)
        self._batch = KVBatch(loaded.model, loaded.device)
        self._loras = LoraLayers(loaded.model, loaded.device)
        self._rows: list[Row] = []
        self._jobs: list[Job] = []
        """The job of each row, in the order of the batch."""
        return loaded

    def _within(self) -> AbstractContextManager[object]:
        return torch.inference_mode()

    def _running(self) -> Sequence[Job]:
        return list(dict.fromkeys(self._jobs))

    def _turn(self) -> None:
        self._admit()
        if self._rows:
            self._guarded(self._step, self._running())

    def _remove(self, jobs: Sequence[Job]) -> None:
        self._keep([job not in jobs for job in self._jobs])

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

    def _begin(self, group: list[Job]) -> None:
        """Prefill a group together, and give each of its rows its first token. A request to be
        continued comes alone."""
        resumed = list(group[0].request.resume_ids)
        self._loras.use([_lora(job.adapter) for job in group])
        prefill = self._batch.prefill([job.ids for job in group], keep=len(resumed) + 1)
        if resumed:
            (job,) = group
            job.generated = len(resumed)
            self._resume(job.rows[0], prefill.logits[0, :-1], resumed)
            if job.rows[0].finish_reason is not None:
                self._send(job, job.rows[0].completion())
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
        self._push_all(range(first, len(self._rows)), tokens, logprobs)

    def _step(self) -> None:
        self._loras.use([_lora(row.adapter) for row in self._rows])
        logits = self._batch.step([row.output_ids[-1] for row in self._rows])
        tokens, logprobs = _choose(logits, self._rows)
        self._push_all(range(len(self._rows)), tokens, logprobs)

    def _push_all(self, places: Sequence[int], tokens: list[int], logprobs: list[float]) -> None:
        """Give each of these rows its token; finished rows leave the batch, and so do those of
        a request whose grammar fails."""
        failed: list[Job] = []
        for place, token, logprob in zip(places, tokens, logprobs, strict=True):
            job = self._jobs[place]
            job.generated += 1
            if job not in failed:
                try:
                    self._push(job, self._rows[place], token, logprob)
                except EngineError as error:
                    failed.append(job)
                    self._send(job, error)
        self._keep(
            [
                row.finish_reason is None and job not in failed
                for row, job in zip(self._rows, self._jobs, strict=True)
            ]
        )

    def _keep(self, wanted: Sequence[bool]) -> None:
        places = [place for place, stays in enumerate(wanted) if stays]
        if len(places) < len(self._rows):
            self._batch.keep(places)
            self._rows = [self._rows[place] for place in places]
            self._jobs = [self._jobs[place] for place in places]

    def _fail(self, jobs: Sequence[Job], failure: EngineError) -> None:
        if len(self._batch) != len(self._rows):
            # The cache was lost with it: no row can go on.
            jobs = list(dict.fromkeys([*jobs, *self._jobs]))
            self._batch.clear()
            self._rows, self._jobs = [], []
        super()._fail(jobs, failure)

    def _failure_of(self, error: Exception) -> EngineError:
        if isinstance(error, torch.OutOfMemoryError) or any(
            words in str(error) for words in ("can't allocate memory", "out of memory")
        ):
            return _out_of_memory(error)
        return super()._failure_of(error)

    def _resume(self, row: Row, logits: torch.Tensor, resumed: list[int]) -> None:
        """Take over tokens that another worker has streamed; nothing is shown a second time."""
        for place, token in enumerate(resumed):
            here = forbid(logits[place : place + 1], [row.allowed])
            (logprob,) = given_logprobs(here, row.sampling, [token])
            if logprob == float("-inf") or row.finish_reason is not None:
                raise cannot_continue(row)
            row.push(token, logprob)

    def _scored(self, ids: list[int], adapter: AdapterVersion | None) -> list[float]:
        self._loras.use([_lora(adapter)])
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

    def _adapter_from(self, path: str) -> Lora:
        return self._loras.read(path)

    def _forget_adapter(self, adapter: AdapterVersion) -> None:
        """Nothing to do: the last reference to its tensors goes with it."""


def _lora(adapter: AdapterVersion | None) -> Lora | None:
    return None if adapter is None else adapter.weights


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

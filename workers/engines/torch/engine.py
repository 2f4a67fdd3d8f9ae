"""Models in this process, run by transformers: full precision, any Qwen, Llama or similar model.

All rows are decoded together, one token per pass. A prompt that shares its beginning with a
sequence in memory is read from the end of that beginning on. Prompts with a similar number of
tokens left to read are read together, before the other rows continue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from transformers import DynamicCache

from loopline.workers.engines.local.adapter_base import (
    holds_whole_model,
)
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import (
    WORTH_SHARING,
    Shortage,
    common_prefix,
    shares_more,
)
from loopline.workers.engines.local.engine import LocalEngine
from loopline.workers.engines.local.model_files import is_out_of_memory
from loopline.workers.engines.local.row import Row
from loopline.workers.engines.local.sampling import raw_logprobs
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.kv_batch import READ_AT_ONCE, KVBatch
from loopline.workers.engines.torch.kv_cache import States
from loopline.workers.engines.torch.loading import LoadedModel, load_model
from loopline.workers.engines.torch.lora import Lora, LoraLayers
from loopline.workers.engines.torch.prefix_cache import PrefixCache
from loopline.workers.engines.torch.whole_models import WholeModel, WholeModels, read_whole_model

SCORE_CHUNK = 256
"""Tokens scored, or taken over from another worker, per forward pass: limits the logits in memory
to 256 x vocabulary floats."""

PLAIN_TOKENS = 2048
"""Most tokens in a pass of several finished rows for `plain_logprobs`, padding included."""

PREFILL_TOKENS = 4096
"""Most tokens, padding included, in one prefill: enough to keep the cores busy, and few enough that
running rows do not wait long for their next token."""

PADDING = 1.25
"""Joint prefilling pays off (2.5 times on short prompts) until padding is a fifth of the work."""

KEPT_TOKENS = 8192
"""Tokens of finished sequences that are cached for prompts with the same beginning: those of about
twenty requests, so that the roles' prompts stay. At most a quarter of max_tokens_in_flight."""


class TorchBackend:
    """See the module docstring and `Backend`."""

    kind = "torch"
    reads_apart = True

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self.max_rows = settings.max_concurrency

    def load(self) -> LoadedModel:
        torch.set_num_threads(self._settings.threads)
        self._loaded = loaded = load_model(self._settings)
        self._batch = KVBatch(loaded.model, loaded.device, self.max_rows, loaded.max_context)
        bound = self._settings.max_tokens_in_flight
        self._prefixes = PrefixCache(KEPT_TOKENS if bound is None else min(KEPT_TOKENS, bound // 4))
        self._loras = LoraLayers(loaded.model, loaded.device)
        self._models = WholeModels(loaded.model, loaded.device)
        self._used: list[AdapterVersion | None] = []
        """Adapter version of each row of the last pass."""
        self._unread: dict[Row, States] = {}
        """Rows that are not in the batch yet, with the keys and values of their cached
        beginning."""
        self._mixed = False
        """Whether the next pass reads them and also continues the other rows."""
        return loaded

    @property
    def kv_capacity(self) -> int | None:
        return self._settings.max_tokens_in_flight

    def unload(self) -> None:
        """Do nothing: the memory is freed with the last reference to the model."""

    def context(self) -> AbstractContextManager[object]:
        return torch.inference_mode()

    # Rows.

    def find_prefix(self, adapter: AdapterVersion | None, ids: Sequence[int]) -> tuple[States, int]:
        states, length = self._prefixes.longest(adapter, ids, WORTH_SHARING - 1)
        source: Row | None = None
        for row in self._batch.rows:
            same = row.job.adapter is adapter and row.fed > length
            if same and shares_more(row.ids, ids, length):
                source, length = row, min(row.fed, common_prefix(row.ids, ids))
        if source is not None:
            states = self._batch.states(source, length)
        return states, length if states else 0

    def room_for(self, row: Row, rows: Sequence[Row], passed: Sequence[Row], places: int) -> bool:
        """Whether the rows fit. They share one allocation, so the size is rows times the longest
        possible row."""
        everyone = [
            member for first in (*rows, *passed, row) for member in (first, *first.siblings)
        ]
        bound = self._settings.max_tokens_in_flight
        longest = max(len(member.prompt.ids) + member.limit for member in everyone)
        fits = bound is None or len(everyone) * longest <= bound - self._prefixes.budget
        return fits and len(everyone) <= places

    def joins(self, row: Row, reading: Sequence[Row]) -> bool:
        """Whether the row can be read together with the others, that is, if the padding is worth
        it. Rows that are continued or read again are read alone."""
        group = [*reading, row]
        if len(group) > 1 and any(member.unchecked or member.output_ids for member in group):
            return False
        lengths = [member.left for member in group]
        if self._can_mix({member: member.left - member.unchecked for member in group}):
            return True  # without padding
        padded = max(lengths) * len(lengths)
        return len(group) == 1 or padded <= min(PREFILL_TOKENS, PADDING * sum(lengths))

    def enter(self, row: Row, prefix: States) -> None:
        self._unread[row] = prefix

    def plan(self, rows: Sequence[Row]) -> dict[Row, int]:
        if self._unread:
            counts = {row: row.left - row.unchecked for row in self._unread}
            self._mixed = self._can_mix(counts)
            return {**dict.fromkeys(self._batch.rows, 1), **counts} if self._mixed else counts
        for row in rows:
            if row.left > 1:  # it is continued: the ids that must still be checked
                return {row: min(row.left, SCORE_CHUNK)}
        return dict.fromkeys(self._batch.rows, 1)

    def _can_mix(self, counts: Mapping[Row, int]) -> bool:
        """Whether prompts can be read in the same pass as the next tokens of the other rows: each
        token is a row of that pass, so no operation may apply to only some rows."""
        running = self._batch.rows
        return (
            self._batch.packs
            and sum(counts.values()) <= READ_AT_ONCE
            and all(row.left == 1 for row in running)
            and len({row.job.adapter for row in (*running, *counts)}) == 1
        )

    def step(self, feeds: Mapping[Row, int]) -> torch.Tensor:
        if self._unread:
            self._use([row.job.adapter for row in self._unread])
            read = self._batch.read_and_step if self._mixed else self._batch.read
            logits = read(self._unread)  # [rows fed, vocabulary]
            self._unread = {}
            return logits
        row, count = next(iter(feeds.items()))
        if row.left > 1:
            self._use([row.job.adapter])
            return self._batch.extend(row, count)  # [count, vocabulary]
        self._use([row.job.adapter for row in self._batch.rows])
        return self._batch.step()  # [rows, vocabulary]

    def fork(self, row: Row, siblings: Sequence[Row], places: int) -> Sequence[Row]:
        """Return all siblings: they joined the batch when their prompt was read."""
        return siblings

    def finish(self, rows: Sequence[Row]) -> None:
        for row in rows:
            try:
                self._prefixes.put(
                    row.job.adapter,
                    row.ids[: row.fed],
                    lambda row=row: self._batch.states(row, row.fed),
                )
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                self._prefixes.clear()
        self._batch.remove(rows)

    def drop(self, rows: Sequence[Row]) -> None:
        self._unread = {row: entry for row, entry in self._unread.items() if row not in rows}
        self._batch.wipe(rows)
        self._batch.remove(rows)

    def lost(self, rows: Sequence[Row]) -> Sequence[Row]:
        return [row for row in rows if row not in self._unread and row not in self._batch.rows]

    def recompute_logprobs(self, rows: Sequence[Row]) -> None:
        """Recompute log-probabilities in passes over prompts and outputs, without a cache, grouping
        rows of similar length."""
        if not self._settings.plain_logprobs:
            return
        most = plain_tokens(self._loaded.device)
        by_adapter: dict[AdapterVersion | None, list[Row]] = {}
        for row in rows:
            by_adapter.setdefault(row.job.adapter, []).append(row)
        for adapter, of_adapter in by_adapter.items():
            self._use([adapter])
            waiting: list[Row] = []
            # Shortest first: then the last row of a pass determines the pass's length.
            for row in sorted(of_adapter, key=_length):
                if waiting and _length(row) * (len(waiting) + 1) > most:
                    self._plain_pass(waiting)
                    waiting = []
                waiting.append(row)
            self._plain_pass(waiting)

    def _plain_pass(self, rows: Sequence[Row]) -> None:
        """Rows are padded on the right, which causal attention ignores."""
        whole = [[*row.prompt.ids, *row.output_ids] for row in rows]
        longest = max(map(len, whole))
        ids = torch.tensor(
            [[*row_ids, *[0] * (longest - len(row_ids))] for row_ids in whole],
            device=self._loaded.device,
        )
        # From the first position at which any row's output starts to be drawn.
        first = min(len(row.prompt.ids) for row in rows) - 1
        logits = self._loaded.model(
            input_ids=ids, use_cache=False, logits_to_keep=longest - first
        ).logits
        for place, row in enumerate(rows):
            begin = len(row.prompt.ids) - 1 - first
            logprobs: list[float] = []
            for start in range(0, len(row.output_ids), SCORE_CHUNK):
                tokens = row.output_ids[start : start + SCORE_CHUNK]
                at = begin + start
                logprobs.extend(raw_logprobs(logits[place, at : at + len(tokens)], tokens))
            row.take_logprobs(logprobs)

    def score(self, ids: Sequence[int], adapter: AdapterVersion | None) -> list[float]:
        self._use([adapter])
        cache = DynamicCache()
        result: list[float] = []
        for start in range(0, len(ids) - 1, SCORE_CHUNK):
            chunk = ids[start : min(start + SCORE_CHUNK, len(ids) - 1)]
            tokens = torch.tensor([chunk], device=self._loaded.device)
            logits = self._loaded.model(
                input_ids=tokens, past_key_values=cache, use_cache=True
            ).logits[0]  # [chunk, vocabulary]
            result.extend(raw_logprobs(logits, ids[start + 1 : start + 1 + len(chunk)]))
        return result

    # Memory.

    def shortage(self, error: Exception) -> Shortage | None:
        if not _is_out_of_memory(error):
            return None
        reason = " ".join(str(error).split())[:200]
        alone = EngineError(
            f"out of memory: this request does not fit even alone ({reason}); lower "
            "max_context or max_tokens of this pool",
            kind="unavailable",
            retryable=True,
        )
        return Shortage(reason, alone, halve=True)

    def release(self) -> None:
        self._prefixes.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def in_use(self) -> dict[str, int]:
        return {"rows in the cache": len(self._batch.rows)}

    # Adapters.

    def read_adapter(self, path: str) -> str | WholeModel:
        """Read a whole model; for a LoRA, check the base that it was trained on and return its
        path."""
        if holds_whole_model(path):
            return read_whole_model(path, self._loaded, self._models.original)
        self._loaded.check_base_of(path)
        return path

    def load_adapter(self, read: str | WholeModel) -> Lora | WholeModel:
        return read if isinstance(read, WholeModel) else self._loras.read(read)

    def forget_adapter(self, adapter: AdapterVersion) -> None:
        """Release an adapter. Its tensors are freed with the last reference, and the last pass may
        have kept one."""
        self._prefixes.forget(adapter)
        self._use([None])

    def _use(self, adapters: Sequence[AdapterVersion | None]) -> None:
        """Set the adapter of each row in the following passes."""
        if adapters == self._used:
            return
        weights: list[Lora | WholeModel | None] = [
            adapter and adapter.weights for adapter in adapters
        ]
        self._models.use(
            [adapter if isinstance(adapter, WholeModel) else None for adapter in weights]
        )
        self._loras.use([adapter if isinstance(adapter, Lora) else None for adapter in weights])
        self._used = list(adapters)


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error)


def plain_tokens(device: torch.device) -> int:
    """Most tokens in a pass of several finished rows. On a CPU each row has its own pass: which
    rows finish together is random, and a resumed training must have the same bits."""
    return 0 if device.type == "cpu" else PLAIN_TOKENS


def _length(row: Row) -> int:
    return len(row.prompt.ids) + len(row.output_ids)


class TorchEngine(LocalEngine[LoadedModel]):
    """See `LocalEngine`."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, TorchBackend)


def engine(settings: ModelSettings) -> TorchEngine:
    """Entry point of the factory."""
    return TorchEngine(settings)

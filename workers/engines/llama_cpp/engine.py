"""Models in this process, run by llama.cpp: quantized or full, any architecture that it supports
(GGUF).

Many sequences share one context, with one call per pass. Each pass takes one token of every row
that is generating, plus a piece of the prompts that wait to be read, so that a long prompt does not
stall the other rows. A prompt that shares its beginning with a sequence in memory starts after that
beginning (see `Sequences`). Requests are admitted as long as their prompts fit into the cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loopline.workers.engines.llama_cpp.context import MAX_SEQUENCES, CellsFull, Feed, LlamaContext
from loopline.workers.engines.llama_cpp.loading import (
    LoadedGguf,
    free_gguf_adapter,
    load_gguf,
    load_gguf_adapter,
)
from loopline.workers.engines.llama_cpp.sequences import LlamaSequence, Sequences
from loopline.workers.engines.local.adapter_base import base_of_gguf_adapter, require_base
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import Shortage
from loopline.workers.engines.local.engine import LocalEngine
from loopline.workers.engines.local.row import Row
from loopline.workers.engines.local.sampling import raw_logprobs
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings

KEPT = 8
"""Most finished sequences that stay in memory."""

READ_ALONE = 512
"""Prompt tokens in a pass in which no row is generating."""

READ_WHILE_GENERATING = 128
"""Prompt tokens in a pass in which rows wait for their next token: such a pass takes a few times as
long as one without prompts, rather than a few hundred times."""

HEADROOM = 16
"""Cells that must stay free per row when another row is admitted."""

SCORE_CHUNK = 128
"""Tokens per call when scoring, or when taking a row over from another worker: limits the logits in
memory to 128 x vocabulary floats."""

CELLS_FOR = 16
"""Rows of maximum length for which the cells suffice by default (without max_tokens_in_flight).
Most requests are far shorter than the context."""

QUANTUM = 8
"""Passes in a row for one adapter while rows of another wait: an adapter applies to the whole
context, so they cannot share a pass."""


class LlamaBackend:
    """See the module docstring and `Backend`. A row's slot is its `LlamaSequence`."""

    kind = "llama_cpp"
    reads_apart = False

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self.max_rows = min(settings.max_concurrency, MAX_SEQUENCES - KEPT - 1)

    def load(self) -> LoadedGguf:
        self._loaded = loaded = load_gguf(self._settings)
        cells = self._settings.max_tokens_in_flight or loaded.max_context * min(
            self.max_rows, CELLS_FOR
        )
        try:
            self._context = LlamaContext(
                loaded.model,
                cells=max(cells, loaded.max_context),
                sequences=self.max_rows + KEPT + 1,  # the last one is for scores
                batch=max(READ_ALONE, self.max_rows + READ_WHILE_GENERATING),
                threads=self._settings.threads,
                exact=self._settings.dtype == "float32",
            )
        except EngineError:
            loaded.close()
            raise
        self._sequences = Sequences(
            self._context, cells=self._context.cells, in_use=self.max_rows, idle=KEPT
        )
        self._adapter: AdapterVersion | None = None
        """Adapter of the rows that currently run."""
        self._passes = 0
        """Number of consecutive passes of those rows."""
        return loaded

    @property
    def kv_capacity(self) -> int | None:
        return self._context.cells

    def unload(self) -> None:
        self._context.close()
        self._loaded.close()

    def context(self) -> AbstractContextManager[object]:
        return nullcontext()

    # Rows.

    def find_prefix(
        self, adapter: AdapterVersion | None, ids: Sequence[int]
    ) -> tuple[LlamaSequence | None, int]:
        return self._sequences.longest_prefix(adapter, ids)

    def room_for(self, row: Row, rows: Sequence[Row], passed: Sequence[Row], places: int) -> bool:
        """Whether the cells have room for the row, counting known prompts: only the first
        completion of a request counts, because the others can be admitted later."""
        spare = self._sequences.spare_cells - sum(member.left for member in rows)
        return len(rows) < places and row.left + HEADROOM * (len(rows) + 1) <= spare

    def joins(self, row: Row, reading: Sequence[Row]) -> bool:
        return True

    def enter(self, row: Row, prefix: LlamaSequence | None) -> None:
        row.slot = self._sequences.open(row.job.adapter, prefix, row.fed)

    def plan(self, rows: Sequence[Row]) -> dict[Row, int]:
        """Makes room for the pass; raises CellsFull if there is none, unless only one row runs."""
        self._choose_adapter(rows)
        present = [row for row in rows if row.job.adapter is self._adapter]
        feeds = {row: 1 for row in present if row.output_ids and row.left == 1}
        budget = READ_WHILE_GENERATING if feeds else READ_ALONE
        for row in present:
            if budget and row not in feeds:
                # Logits are needed from the token before the first unchecked one on.
                before = row.left - row.unchecked - 1
                feeds[row] = min(row.left, budget, before + SCORE_CHUNK)
                budget -= feeds[row]
        self._make_room(sum(feeds.values()), may_fail=len(rows) > 1)
        return feeds

    def _make_room(self, cells: int, *, may_fail: bool) -> None:
        while self._sequences.free_cells < cells:
            if not self._sequences.evict_oldest():
                if may_fail:
                    raise CellsFull
                return

    def _choose_adapter(self, rows: Sequence[Row]) -> None:
        """Choose the adapter of the next pass: rows of one adapter get a quantum of passes, then
        the rows of the next adapter."""
        present = list(dict.fromkeys(row.job.adapter for row in rows))
        self._passes += 1
        if self._adapter in present and (self._passes <= QUANTUM or len(present) == 1):
            return
        if self._adapter in present:
            present = present[present.index(self._adapter) + 1 :] + present
        self._adapter, self._passes = present[0], 1
        self._context.use_adapter(None if self._adapter is None else self._adapter.weights)

    def step(self, feeds: Mapping[Row, int]) -> NDArray[np.float32]:
        batch = [
            Feed(row.slot.number, row.fed, row.ids[row.fed : row.fed + count], row.wanted(count))
            for row, count in feeds.items()
        ]
        while True:
            try:
                logits = self._context.decode(batch)
                break
            except CellsFull:  # the count had shown enough room
                if not self._sequences.evict_oldest():
                    raise
        for row, feed in zip(feeds, batch, strict=True):
            self._sequences.extend(row.slot, feed.tokens)
        return logits

    def fork(self, row: Row, siblings: Sequence[Row], places: int) -> Sequence[Row]:
        forked = siblings[: max(0, places)]
        for sibling in forked:
            sibling.slot = self._sequences.open(row.job.adapter, row.slot, row.fed)
        return forked

    def finish(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._sequences.finish(row.slot)

    def drop(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._sequences.drop(row.slot)

    def lost(self, rows: Sequence[Row]) -> Sequence[Row]:
        return ()

    def recompute_logprobs(self, rows: Sequence[Row]) -> None:
        """Do nothing: only torch can recompute, and the settings reject it for this engine."""

    def score(self, ids: Sequence[int], adapter: AdapterVersion | None) -> list[float]:
        """Compute the log-probabilities of `ids[1:]` in a separate sequence, which is then
        released."""
        self._make_room(len(ids), may_fail=True)
        number = self.max_rows + KEPT
        result: list[float] = []
        self._context.use_adapter(None if adapter is None else adapter.weights)
        try:
            for start in range(0, len(ids) - 1, SCORE_CHUNK):
                chunk = ids[start : min(start + SCORE_CHUNK, len(ids) - 1)]
                logits = self._context.decode([Feed(number, start, chunk, len(chunk))])
                result.extend(raw_logprobs(logits, ids[start + 1 : start + 1 + len(chunk)]))
        finally:
            self._context.drop(number)
            self._context.use_adapter(None if self._adapter is None else self._adapter.weights)
        return result

    # Memory.

    def shortage(self, error: Exception) -> Shortage | None:
        if not isinstance(error, CellsFull):
            return None
        alone = EngineError(
            f"llama.cpp has no room for a single request in {self._context.cells} cells; raise "
            "max_tokens_in_flight",
            kind="unavailable",
            retryable=True,
        )
        return Shortage("no cell is free", alone, halve=False)

    def release(self) -> None:
        """Do nothing: `plan` has already made room for the pass."""

    def in_use(self) -> dict[str, int]:
        return self._sequences.in_use(self._context.length)

    # Adapters.

    def read_adapter(self, path: str) -> str:
        """Check which base the adapter was trained on, and return its path."""
        loaded = self._loaded
        require_base(path, base_of_gguf_adapter(path), lambda: loaded.weights_sha256, loaded.base)
        return path

    def load_adapter(self, read: str) -> Any:
        return load_gguf_adapter(self._loaded, read)

    def forget_adapter(self, adapter: AdapterVersion) -> None:
        self._sequences.forget(adapter)
        if self._adapter is adapter:
            self._adapter = None
            self._context.use_adapter(None)
        free_gguf_adapter(adapter.weights)


class LlamaCppEngine(LocalEngine[LoadedGguf]):
    """See `LocalEngine`."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, LlamaBackend)


def engine(settings: ModelSettings) -> LlamaCppEngine:
    """Entry point of the factory."""
    return LlamaCppEngine(settings)

"""Decodes with llama.cpp: many sequences in one context, one call a step.

Continuous batching: each step takes one token of every row that is being written, and beside them
a piece of the prompts that wait to be read, so that a long prompt does not stall the others. A
prompt that begins like one in memory starts behind that beginning (see `Sequences`).

Requests are admitted as long as their prompts fit into the cells. Should the rows then outgrow
them, the youngest is set back: its cells are given back, and it is read in again when there is
room. The oldest always goes on, so every request ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
from loopline.workers.engines.llama_cpp.sequences import Held, Sequences
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.decoder import Decoder, Job, cannot_continue
from loopline.workers.engines.local.prefixes import common_prefix
from loopline.workers.engines.local.row import Row
from loopline.workers.engines.local.sampling import choose_tokens, given_token, raw_logprobs
from loopline.workers.engines.protocol import EngineError

KEPT = 8
"""Finished sequences that stay in memory, at most."""

READ_ALONE = 512
"""Prompt tokens in a step in which no row is being written."""

READ_BESIDE = 128
"""Prompt tokens in a step in which rows wait for their next token: it takes them a few times as
long as another, and not a few hundred times."""

WORTH_WAITING = 16
"""A prompt waits for the reading of another one that has so many tokens more in common with it
than any in memory, instead of reading them as well."""

HEADROOM = 16
"""Cells left free for each row when another one is admitted."""

SCORE_CHUNK = 128
"""Tokens scored, or of one row taken over from another worker, per call: bounds the logits in
memory to 128 x vocabulary floats."""

CELLS_FOR = 16
"""Rows of the longest kind that the cells suffice for, unless max_tokens_in_flight says more or
less. Most requests are far shorter than the context."""

QUANTUM = 8
"""Steps that the rows of one adapter go on while those of another wait: the adapter is the whole
context's, so they cannot share a step."""


@dataclass(eq=False)
class Lane:
    """One row on its way: what is in memory of it, and what is still to be fed."""

    job: Job
    row: Row
    held: Held
    pending: list[int]
    """Tokens to be fed before the next one can be sampled."""
    given: list[int] = field(default_factory=list[int])
    """Ids to continue from that are not checked against their logits yet: the last of `pending`."""
    siblings: list[Row] = field(default_factory=list[Row])
    """Rows of the same request that begin behind the same prompt."""

    @property
    def writing(self) -> bool:
        return bool(self.row.output_ids) and len(self.pending) == 1


@dataclass(eq=False)
class Parked:
    """A row that was set back for want of cells."""

    job: Job
    row: Row


class LlamaDecoder(Decoder[LoadedGguf]):
    """See the module, and `Decoder`."""

    kind = "llama_cpp"

    def _load(self) -> LoadedGguf:
        loaded = load_gguf(self._settings)
        self._places = min(self._settings.max_concurrency, MAX_SEQUENCES - KEPT - 1)
        cells = self._settings.max_tokens_in_flight or loaded.max_context * min(
            self._places, CELLS_FOR
        )
        try:
            self._context = LlamaContext(
                loaded.model,
                cells=max(cells, loaded.max_context),
                sequences=self._places + KEPT + 1,  # the last one is for scores
                batch=max(READ_ALONE, self._places + READ_BESIDE),
                threads=self._settings.threads,
                exact=self._settings.dtype == "float32",
            )
        except EngineError:
            loaded.close()
            raise
        self._sequences = Sequences(
            self._context, cells=self._context.cells, in_work=self._places, kept=KEPT
        )
        self._lanes: list[Lane] = []
        """In the order of their admission."""
        self._parked: deque[Parked] = deque()
        self._adapter: AdapterVersion | None = None
        """Of the rows whose turn it is."""
        self._steps = 0
        """That they have had in a row."""
        return loaded

    def _unload(self) -> None:
        self._context.close()
        self._model.close()

    def _running(self) -> Sequence[Job]:
        return list(dict.fromkeys(each.job for each in (*self._lanes, *self._parked)))

    def _turn(self) -> None:
        self._admit()
        if self._lanes:
            self._step()

    def _remove(self, jobs: Sequence[Job]) -> None:
        for lane in [lane for lane in self._lanes if lane.job in jobs]:
            self._sequences.drop(lane.held)
            self._lanes.remove(lane)
        self._parked = deque(each for each in self._parked if each.job not in jobs)

    # Who is let in.

    def _admit(self) -> None:
        """First come, first served; rows that were set back come before all others. A prompt of
        which much is about to be read for another one lets those behind it pass."""
        while self._parked:
            parked = self._parked[0]
            ids = [*parked.row.prompt.ids, *parked.row.output_ids]
            source, length = self._sequences.longest_prefix(parked.job.adapter, ids[:-1])
            if not self._room_for(len(ids) - length):
                return
            self._parked.popleft()
            held = self._sequences.open(parked.job.adapter, source, length)
            self._lanes.append(Lane(parked.job, parked.row, held, ids[length:]))
        passed: list[Job] = []
        while self._waiting:
            job = self._waiting.popleft()
            if not job.rows and not self._guarded(lambda job=job: self._prepare(job), [job]):
                continue
            # Logits are needed from the prompt's last token on.
            beginning = job.rows[0].prompt.ids[:-1]
            source, length = self._sequences.longest_prefix(job.adapter, beginning)
            if self._is_about_to_be_read(job, beginning, length + WORTH_WAITING):
                passed.append(job)
            elif self._room_for(len(job.ids) - length):
                self._enter(job, source, length)
            else:
                passed.append(job)
                break
        self._waiting.extendleft(reversed(passed))

    def _enter(self, job: Job, source: Held | None, length: int) -> None:
        row, *siblings = job.rows
        row.cached = length
        held = self._sequences.open(job.adapter, source, length)
        given = list(job.request.resume_ids)
        self._lanes.append(Lane(job, row, held, job.ids[length:], given, siblings=siblings))

    def _room_for(self, tokens: int) -> bool:
        if len(self._lanes) >= self._places:
            return False
        spare = self._sequences.spare_cells - sum(len(lane.pending) for lane in self._lanes)
        return not self._lanes or tokens + HEADROOM * (len(self._lanes) + 1) <= spare

    def _is_about_to_be_read(self, job: Job, beginning: list[int], tokens: int) -> bool:
        """Whether a row in work will have computed so many tokens of this beginning."""
        return any(
            common_prefix([*lane.held.tokens, *lane.pending], beginning) >= tokens
            for lane in self._lanes
            if len(lane.pending) > 1 and lane.held.key == job.adapter
        )

    # One step.

    def _step(self) -> None:
        feeds = self._plan()
        try:
            logits = self._context.decode([feed for _, feed in feeds])
        except CellsFull:
            # By the count there was room. Make some: the plan is made anew in the next turn.
            if not self._sequences.give_up_one() and not self._set_back_one():
                (lane, _) = feeds[0]
                self._fail([lane.job], _no_cells(self._context.cells))
            return
        except EngineError as error:
            self._fail(list(dict.fromkeys(lane.job for lane, _ in feeds)), error)
            return
        ready: list[tuple[Lane, NDArray[np.float32]]] = []
        place = 0
        for lane, feed in feeds:
            self._sequences.extend(lane.held, feed.tokens)
            del lane.pending[: len(feed.tokens)]
            rows = logits[place : place + feed.wanted]
            place += feed.wanted
            following = rows if lane.pending else rows[:-1]
            taken = self._guarded(
                lambda lane=lane, following=following: self._take_given(lane, following), [lane.job]
            )
            if taken and not lane.pending:
                ready.append((lane, rows[-1]))
        self._sample(ready)

    def _plan(self) -> list[tuple[Lane, Feed]]:
        """What to feed in this step; makes room for it."""
        self._choose_adapter()
        while True:
            lanes = [lane for lane in self._lanes if lane.job.adapter is self._adapter]
            writing = [lane for lane in lanes if lane.writing]
            budget = READ_BESIDE if writing else READ_ALONE
            feeds = [(lane, self._feed(lane, 1)) for lane in writing]
            for lane in lanes:
                if budget and not lane.writing:
                    feed = self._feed(lane, budget)
                    budget -= len(feed.tokens)
                    feeds.append((lane, feed))
            needed = sum(len(feed.tokens) for _, feed in feeds)
            while self._sequences.free_cells < needed and self._sequences.give_up_one():
                pass
            if self._sequences.free_cells >= needed or not self._set_back_one():
                return feeds

    def _choose_adapter(self) -> None:
        """Whose turn it is: the same rows' for a quantum of steps, then those after them."""
        present = list(dict.fromkeys(lane.job.adapter for lane in self._lanes))
        self._steps += 1
        if self._adapter in present and (self._steps <= QUANTUM or len(present) == 1):
            return
        if self._adapter in present:
            present = present[present.index(self._adapter) + 1 :] + present
        self._adapter, self._steps = present[0], 1
        self._context.use_adapter(None if self._adapter is None else self._adapter.weights)

    @staticmethod
    def _feed(lane: Lane, limit: int) -> Feed:
        # Logits are wanted after the token before the first given one, and after each given one.
        before = len(lane.pending) - len(lane.given) - 1
        tokens = lane.pending[: min(limit, before + SCORE_CHUNK)]
        left = len(lane.pending) - len(tokens)
        wanted = max(0, len(lane.given) + 1 - left)
        return Feed(lane.held.number, len(lane.held.tokens), tokens, min(wanted, len(tokens)))

    def _set_back_one(self) -> bool:
        """Take the youngest row out of memory, unless it is the only one."""
        if len(self._lanes) < 2:
            return False
        lane = self._lanes.pop()
        self._sequences.drop(lane.held)
        if lane.given:
            lane.job.rows, lane.job.generated = [], 0  # to be prepared anew
            self._waiting.appendleft(lane.job)
        elif lane.row.output_ids or lane.row.index:
            self._parked.appendleft(Parked(lane.job, lane.row))
        else:
            self._waiting.appendleft(lane.job)  # none of its rows has begun
        return True

    def _sample(self, ready: Iterable[tuple[Lane, NDArray[np.float32]]]) -> None:
        rows: list[tuple[Lane, NDArray[np.float32]]] = []
        for lane, logits in ready:
            if lane.row.finish_reason is None:
                rows.append((lane, logits))
                rows.extend((each, logits) for each in self._fork(lane))
            else:
                self._send(lane.job, self._completion(lane.row))
                self._leave(lane)
        if not rows:
            return
        lanes = [lane for lane, _ in rows]
        stacked = np.stack([logits for _, logits in rows])
        chosen = choose_tokens(
            stacked,
            [lane.row.allowed for lane in lanes],
            [lane.row.sampling for lane in lanes],
            [len(lane.row.output_ids) for lane in lanes],
        )
        for lane, sampled in zip(lanes, chosen, strict=True):
            lane.job.generated += 1
            if lane in self._lanes and self._guarded(
                lambda lane=lane, sampled=sampled: self._push(lane.job, lane.row, sampled),
                [lane.job],
            ):
                lane.pending.append(lane.row.output_ids[-1])
                if lane.row.finish_reason is not None:
                    self._leave(lane)

    def _take_given(self, lane: Lane, logits: NDArray[np.float32]) -> None:
        """Take over tokens that another worker has streamed, as many as there are logits for
        [tokens, vocabulary]; nothing is shown a second time."""
        row, count = lane.row, len(logits)
        for token, here in zip(lane.given[:count], logits, strict=True):
            sampled = given_token(here[None], row.allowed, row.sampling, token)
            if sampled is None or row.finish_reason is not None:
                raise cannot_continue(row)
            row.push(sampled)
        del lane.given[:count]
        lane.job.generated += count

    def _fork(self, lane: Lane) -> list[Lane]:
        """Lanes for the request's other completions, which begin behind the same prompt. Those
        for which there is no place come later."""
        siblings, lane.siblings = lane.siblings, []
        places = self._places - len(self._lanes)
        forks = [
            Lane(
                lane.job,
                row,
                self._sequences.open(lane.held.key, lane.held, len(lane.held.tokens)),
                [],
            )
            for row in siblings[:places]
        ]
        self._lanes.extend(forks)
        self._parked.extend(Parked(lane.job, row) for row in siblings[places:])
        return forks

    def _leave(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        self._sequences.finish(lane.held)

    # Scores.

    def _scored(self, ids: list[int], adapter: AdapterVersion | None) -> list[float]:
        """In a sequence of its own, which is given back at once."""
        while self._sequences.free_cells < len(ids):
            if not self._sequences.give_up_one() and not self._set_back_one():
                raise _no_cells(self._context.cells)
        number = self._places + KEPT
        result: list[float] = []
        self._context.use_adapter(None if adapter is None else adapter.weights)
        try:
            for start in range(0, len(ids) - 1, SCORE_CHUNK):
                chunk = ids[start : min(start + SCORE_CHUNK, len(ids) - 1)]
                logits = self._context.decode([Feed(number, start, chunk, len(chunk))])
                result.extend(raw_logprobs(logits, ids[start + 1 : start + 1 + len(chunk)]))
        except CellsFull as error:
            raise _no_cells(self._context.cells) from error
        finally:
            self._context.drop(number)
            self._context.use_adapter(None if self._adapter is None else self._adapter.weights)
        return result

    def _rows_in_work(self) -> dict[str, int]:
        rows = len(self._lanes) + len(self._parked)
        return {"rows": rows, **self._sequences.in_work(self._context.length)}

    # Adapters.

    def _adapter_from(self, read: Any) -> Any:
        return load_gguf_adapter(self._model, read)

    def _forget_adapter(self, adapter: AdapterVersion) -> None:
        self._sequences.forget(adapter)
        if self._adapter is adapter:
            self._adapter = None
            self._context.use_adapter(None)
        free_gguf_adapter(adapter.weights)


def _no_cells(cells: int) -> EngineError:
    return EngineError(
        f"llama.cpp finds no room for one request in {cells} cells; raise max_tokens_in_flight",
        kind="unavailable",
        retryable=True,
    )

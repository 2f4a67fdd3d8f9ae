"""The rows that are decoded together, and the model's passes that read and extend them.

A row joins when its prompt is read (after a cached beginning, if there is one), and leaves without
waiting for the others. Positions count a row's own tokens; a mask hides all other columns from each
row. Owned by one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from loopline.workers.engines.local.row import Row
from loopline.workers.engines.torch.dense import install
from loopline.workers.engines.torch.kv_cache import KVCache, Packed, Piece, States
from loopline.workers.engines.torch.shared_beginnings import SharedBeginnings

READ_AT_ONCE = 512
"""Most tokens that one pass reads after a cached beginning: limits the mask to this many times the
context."""


class KVBatch:
    """Batch of rows in the cache. A row's place is its index in `rows`, and the columns up to
    `row.fed` are its own; the caller advances `row.fed` after a pass."""

    def __init__(self, model: Any, device: torch.device, most_rows: int, most_columns: int) -> None:
        self._model = model
        self._device = device
        self._cache = KVCache(most_rows, most_columns)
        self.rows: list[Row] = []
        self._windows = _windows(model.config.get_text_config())
        self._dense = install(model, device)
        self._beginnings = SharedBeginnings()

    def read(self, unread: Mapping[Row, States]) -> torch.Tensor:
        """Append these rows and their siblings, each after a cached beginning (an empty list is
        none) of at most all but its last token.

        Returns the logits [rows of `unread`, vocabulary] after the last tokens, without the ids
        that are unchecked. If it fails, the batch keeps its earlier rows; if memory runs out, it
        may lose them all.
        """
        first, prompts, starts = self._enter(unread)
        if len(prompts) == 1 and starts[0]:
            (ids,), (start,) = prompts, starts
            while len(ids) - start > READ_AT_ONCE:
                end = start + READ_AT_ONCE
                self._forward(first, [ids[:end]], [start])
                start = end
            starts = [start]
        logits = self._forward(first, prompts, starts)[:, -1]
        self._append(unread, prompts)
        return logits

    @property
    def packs(self) -> bool:
        """Whether `read_and_step` can be called."""
        return bool(self.rows) and self._dense is not None and self._dense.is_usable

    def read_and_step(self, unread: Mapping[Row, States]) -> torch.Tensor:
        """`step` and `read` in one pass, without padding. Returns the logits [earlier rows, then
        rows of `unread`; vocabulary]. It fails like `read`."""
        running = list(self.rows)
        first, prompts, starts = self._enter(unread)
        tokens = [row.ids[row.fed] for row in running]
        places, columns = list(range(first)), [row.fed for row in running]
        longest = max(columns) + 1
        pieces: list[Piece] = []
        for place, (ids, start) in enumerate(zip(prompts, starts, strict=True), first):
            count = len(ids) - start
            mask = None
            if start and count > 1:
                mask = torch.full((count, len(ids)), -torch.inf).triu_(start + 1)
            pieces.append(Piece(len(tokens), place, start, count, mask))
            tokens += ids[start:]
            places += [place] * count
            columns += range(start, len(ids))
        fed = torch.tensor([tokens, places, columns])[:, :, None]  # [3, tokens, 1]
        shared = self._beginnings.of(running)
        mask = self._mask(fed[2, :first], longest, 0 if shared is None else shared.length)
        wanted = torch.tensor([*range(first), *(piece.end - 1 for piece in pieces)])
        self._cache.set_window(
            0, fed[2], before=0, width=max(columns) + 1, shared=shared,
            packed=Packed(fed[1], first + len(prompts), first, longest, tuple(pieces), wanted),
        )  # fmt: skip
        logits = self._run(fed[0], fed[2], mask, 1)[:, -1]
        self._append(unread, prompts)
        return logits

    def _enter(self, unread: Mapping[Row, States]) -> tuple[int, list[list[int]], list[int]]:
        """Make room for these rows after the present ones, and write their cached beginnings.
        Returns the place of the first row, the ids of each row to read, and their start offsets."""
        first = len(self.rows)
        prompts = [row.ids[: len(row.ids) - row.unchecked] for row in unread]
        starts = [row.fed for row in unread]
        longest = max(len(ids) - start for ids, start in zip(prompts, starts, strict=True))
        count = sum(1 + len(row.siblings) for row in unread)
        self._fit(first + count, max(start + longest for start in starts))
        for place, states in enumerate(unread.values()):
            if states:
                self._cache.write(first + place, states)
        return first, prompts, starts

    def _append(self, unread: Mapping[Row, States], prompts: Sequence[Sequence[int]]) -> None:
        """Add the rows that were read, and their siblings, to the batch."""
        first, copies = len(self.rows), [1 + len(row.siblings) for row in unread]
        # From the last one on: no prompt's row is overwritten by copies before it is copied itself.
        end = first + sum(copies)
        for place in reversed(range(len(prompts))):
            for target in range(end - copies[place], end):
                if target != first + place:
                    self._cache.copy_row(first + place, target, len(prompts[place]))
            end -= copies[place]
        self.rows += [beginning for row in unread for beginning in (row, *row.siblings)]

    def extend(self, row: Row, count: int) -> torch.Tensor:
        """Feed a row its next `count` tokens; returns the logits [count, vocabulary] after each. If
        memory runs out, all rows may be lost."""
        end = row.fed + count
        self._fit(len(self.rows), end)
        return self._forward(self.rows.index(row), [row.ids[:end]], [row.fed], count)[0]

    def step(self) -> torch.Tensor:
        """Feed every row its next token; returns the logits [rows, vocabulary] after it."""
        lengths = [row.fed for row in self.rows]
        longest = max(lengths) + 1
        self._fit(len(self.rows), longest)
        tokens = [row.ids[row.fed] for row in self.rows]
        fed = torch.tensor([tokens, lengths], device=self._device)  # [2, rows]
        columns = fed[1][:, None]  # [rows, 1]: a token's column is its position
        level = min(lengths) + 1 == longest
        is_dense = self._dense is not None and self._dense.is_usable
        shared = self._beginnings.of(self.rows) if is_dense else None
        begin = 0 if shared is None else shared.length
        mask = None if level else self._mask(columns, longest, begin)
        self._cache.set_window(0, columns, before=longest - 1, width=longest, shared=shared)
        return self._run(fed[0][:, None], columns, mask, 1)[:, -1]

    def states(self, row: Row, length: int) -> States:
        """The keys and values of a row's first tokens; read them before the batch changes."""
        return self._cache.read(self.rows.index(row), length)

    def remove(self, rows: Collection[Row]) -> None:
        """Remove rows, if they are here. The last rows move to the free places, so only they are
        copied."""
        self._beginnings.forget(rows)
        stays = [row not in rows for row in self.rows]
        count = sum(stays)
        if count == len(self.rows):
            return
        if not count:
            self.clear()
            return
        # A row only moves forward, into the place of one that leaves.
        movers = (place for place in range(count, len(stays)) if stays[place])
        for target in range(count):
            if not stays[target]:
                source = next(movers)
                self._cache.copy_row(source, target, self.rows[source].fed)
                self.rows[target] = self.rows[source]
        del self.rows[count:]

    def clear(self) -> None:
        """Remove every row, and release the memory."""
        self._cache.free()
        self._beginnings.forget(self.rows)
        self.rows = []

    def wipe(self, rows: Collection[Row]) -> None:
        """Zero these rows, and anything that a failed pass wrote after the last row: a NaN stays a
        NaN even with a weight of zero, and the next row in its place does not overwrite all of
        it."""
        for place, row in enumerate(self.rows):
            if row in rows:
                self._cache.wipe(place, place + 1)
        self._cache.wipe(len(self.rows))

    def _fit(self, rows: int, columns: int) -> None:
        try:
            self._cache.fit(rows, max([columns, *(row.fed + 1 for row in self.rows)]))
        except RuntimeError:
            self.clear()
            raise

    def _forward(
        self, first: int, rows: Sequence[Sequence[int]], starts: Sequence[int], keep: int = 1
    ) -> torch.Tensor:
        """Run the tokens after `starts` in the rows from `first` on; logits [rows, keep, ...].

        Rows with fewer tokens are padded on the left, so that the last tokens of all rows are in
        one column of the logits. The padding's results are written after the row's end, where
        nothing reads them and later tokens overwrite them.
        """
        fresh = [ids[start:] for ids, start in zip(rows, starts, strict=True)]
        longest = max(map(len, fresh))
        missing = [longest - len(ids) for ids in fresh]
        tokens = torch.tensor(
            [[*[0] * gap, *ids] for gap, ids in zip(missing, fresh, strict=True)],
            device=self._device,
        )  # [rows, longest]
        ahead = torch.arange(longest, device=self._device)[None, :]  # [1, longest]
        gaps = torch.tensor(missing, device=self._device)[:, None]  # [rows, 1]
        begins = torch.tensor(starts, device=self._device)[:, None]  # [rows, 1]
        places = begins + ahead - gaps  # [rows, longest]
        padding = ahead < gaps
        columns = torch.where(padding, places + longest, places)
        width = max(map(len, rows))
        plain = not any(missing) and not any(starts)
        mask = None if plain else self._mask(columns, width)
        self._cache.set_window(first, columns, before=0, width=width)
        return self._run(tokens, places.clamp(min=0), mask, keep)

    def _run(
        self, tokens: torch.Tensor, positions: torch.Tensor, mask: Any, keep: int
    ) -> torch.Tensor:
        return self._model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=keep,
        ).logits

    def _mask(self, columns: torch.Tensor, width: int, begin: int = 0) -> Any:
        """The summand of the attention scores [rows, 1, tokens, seen]: zero where a token sees
        itself or an earlier one, minus infinity elsewhere. One per kind of layer, if the model has
        several. It covers the columns from `begin` up to `width`."""
        positions = torch.arange(begin, width, device=self._device)  # [seen]
        masks: dict[str, torch.Tensor] = {}
        for kind, window in self._windows.items():
            hidden = positions > columns[..., None]  # [rows, tokens, seen]
            if window is not None:
                hidden |= positions <= columns[..., None] - window
            masks[kind] = torch.zeros(
                hidden.shape, dtype=self._model.dtype, device=self._device
            ).masked_fill_(hidden, -torch.inf)[:, None]  # [rows, 1, tokens, seen]
        return masks if len(masks) > 1 else next(iter(masks.values()))


def _windows(config: Any) -> dict[str, int | None]:
    """How far back each kind of layer sees; None is back to the beginning."""
    window: int | None = getattr(config, "sliding_window", None)
    kinds: list[str] = getattr(config, "layer_types", None) or []
    if "sliding_attention" in kinds:
        return {"full_attention": None, "sliding_attention": window}
    return {"full_attention": None if "full_attention" in kinds else window}

"""The rows that are decoded together, and the passes of the model that read and extend them.

A row joins with the reading of its prompt, behind a beginning that was computed before if there
is one, and leaves without waiting for the others. Positions count a row's own tokens; a mask
hides from each row what is not its own. Owned by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from loopline.workers.engines.torch.kv_cache import KVCache, States

READ_AT_ONCE = 512
"""Tokens of a long prompt that are read behind a beginning in one pass: bounds the mask to so many
times the context."""


class KVBatch:
    """Each row's count of computed tokens, and its keys and values."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._cache = KVCache()
        self._lengths: list[int] = []
        self._windows = _windows(model.config.get_text_config())

    def __len__(self) -> int:
        return len(self._lengths)

    def read(
        self,
        prompts: Sequence[Sequence[int]],
        beginnings: Sequence[States],
        copies: Sequence[int],
    ) -> torch.Tensor:
        """Append `copies[i]` rows with prompt i, of which `beginnings[i]` (none is an empty list)
        was computed before: at most all but the last token.

        Returns the logits [prompts, vocabulary] after the last tokens. If it fails, the batch has
        the rows that it had; if memory runs out, perhaps none.
        """
        first = len(self)
        starts = [each[0][0].shape[1] if each else 0 for each in beginnings]
        lengths = [len(ids) for ids in prompts]
        longest = max(length - start for length, start in zip(lengths, starts, strict=True))
        self._fit(first + sum(copies), max(start + longest for start in starts))
        for place, states in enumerate(beginnings):
            if states:
                self._cache.write(first + place, states)
        if len(prompts) == 1 and starts[0]:
            (ids,), (start,) = prompts, starts
            while len(ids) - start > READ_AT_ONCE:
                end = start + READ_AT_ONCE
                self._forward(first, [ids[:end]], [start])
                start = end
            starts = [start]
        logits = self._forward(first, prompts, starts)[:, -1]
        # From the last one on: no prompt's row is taken by copies before it was copied itself.
        end = first + sum(copies)
        for place in reversed(range(len(prompts))):
            for target in range(end - copies[place], end):
                if target != first + place:
                    self._cache.copy_row(first + place, target, lengths[place])
            end -= copies[place]
        for length, count in zip(lengths, copies, strict=True):
            self._lengths += [length] * count
        return logits

    def extend(self, ids: Sequence[int]) -> torch.Tensor:
        """Let the last row have all of `ids`, with whose beginning it was read; returns the logits
        [tokens, vocabulary] after each that was missing. If it fails, the row is as before; if
        memory runs out, perhaps there is none."""
        place = len(self) - 1
        known = self._lengths[place]
        self._fit(len(self), len(ids))
        logits = self._forward(place, [ids], [known], len(ids) - known)
        self._lengths[place] = len(ids)
        return logits[0]

    def step(self, tokens: Sequence[int]) -> torch.Tensor:
        """Feed one token per row; returns the logits [rows, vocabulary] after it."""
        longest = max(self._lengths) + 1
        self._fit(len(self), longest)
        fed = torch.tensor([list(tokens), self._lengths], device=self._device)
        level = min(self._lengths) + 1 == longest
        mask = None if level else self._mask(fed[1][:, None], longest)
        self._cache.aim(0, fed[1][:, None], before=longest - 1, seen=longest)
        logits = self._run(fed[0][:, None], fed[1][:, None], mask, 1)
        self._lengths = [length + 1 for length in self._lengths]
        return logits[:, -1]

    def states(self, row: int, length: int) -> States:
        """The keys and values of a row's first tokens, to be read before the batch changes."""
        return self._cache.read(row, length)

    def computed(self, row: int) -> int:
        """Tokens of a row whose keys and values are here."""
        return self._lengths[row]

    def keep(self, places: Sequence[int]) -> None:
        """Let row `places[i]` be row i, and all others leave. A row may only move forward, into
        the place of one that leaves."""
        if not places:
            self.clear()
            return
        for target, source in enumerate(places):
            if target != source:
                self._cache.copy_row(source, target, self._lengths[source])
        self._lengths = [self._lengths[source] for source in places]

    def cut(self, lengths: Sequence[int]) -> None:
        """Forget what row `i` has behind its first `lengths[i]` tokens."""
        self._lengths = [min(pair) for pair in zip(self._lengths, lengths, strict=True)]

    def clear(self) -> None:
        """Forget every row, and give the memory back."""
        self._cache.free()
        self._lengths = []

    def wipe(self) -> None:
        """Make sure that nothing is left of rows that failed."""
        self._cache.wipe(len(self))

    def wipe_row(self, row: int) -> None:
        """Zero what a row has computed that is no number: another one may take its place, and does
        not overwrite all of it."""
        self._cache.wipe(row, row + 1)

    def _fit(self, rows: int, columns: int) -> None:
        try:
            self._cache.fit(rows, max([columns, *self._lengths]))
        except RuntimeError:
            self.clear()
            raise

    def _forward(
        self, first: int, rows: Sequence[Sequence[int]], starts: Sequence[int], keep: int = 1
    ) -> torch.Tensor:
        """Run what stands behind `starts` in the rows from `first` on; logits [rows, keep, ...].

        Rows with fewer tokens are padded on the left, so that the last tokens of all stand in one
        column of the logits. What the padding computes is written behind the row's end, where
        nobody sees it and later tokens overwrite it.
        """
        fresh = [ids[start:] for ids, start in zip(rows, starts, strict=True)]
        longest = max(map(len, fresh))
        missing = [longest - len(each) for each in fresh]
        tokens = torch.tensor(
            [[*[0] * gap, *each] for gap, each in zip(missing, fresh, strict=True)],
            device=self._device,
        )
        ahead = torch.arange(longest, device=self._device)[None, :]
        gaps = torch.tensor(missing, device=self._device)[:, None]
        places = torch.tensor(starts, device=self._device)[:, None] + ahead - gaps
        padding = ahead < gaps
        columns = torch.where(padding, places + longest, places)
        seen = max(map(len, rows))
        plain = not any(missing) and not any(starts)
        mask = None if plain else self._mask(columns, seen)
        self._cache.aim(first, columns, before=0, seen=seen)
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

    def _mask(self, columns: torch.Tensor, seen: int) -> Any:
        """What is added to the attention scores [rows, 1, tokens, seen]: nothing where a token
        sees itself or one before it, minus infinity elsewhere. By kind of layer, if the model has
        several."""
        each = torch.arange(seen, device=self._device)
        masks: dict[str, torch.Tensor] = {}
        for kind, window in self._windows.items():
            hidden = each > columns[..., None]
            if window is not None:
                hidden |= each <= columns[..., None] - window
            masks[kind] = torch.zeros(
                hidden.shape, dtype=self._model.dtype, device=self._device
            ).masked_fill_(hidden, -torch.inf)[:, None]
        return masks if len(masks) > 1 else next(iter(masks.values()))


def _windows(config: Any) -> dict[str, int | None]:
    """How far back each kind of layer sees; None is to the beginning."""
    window: int | None = getattr(config, "sliding_window", None)
    kinds: list[str] = getattr(config, "layer_types", None) or []
    if "sliding_attention" in kinds:
        return {"full_attention": None, "sliding_attention": window}
    return {"full_attention": None if "full_attention" in kinds else window}

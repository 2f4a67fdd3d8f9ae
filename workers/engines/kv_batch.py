"""The keys and values of the rows that are decoded together.

Rows are left-padded to one length, so that the newest token of every row stands in the last
column. A row joins with the cache of its own prefill, and leaves without waiting for the others.
Positions count a row's real tokens only; the mask hides the padding. Owned by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache


@dataclass(frozen=True)
class Prefill:
    """Prompts that were run: their cache, their lengths [prompts], and the logits
    [prompts, keep, vocabulary] after their last tokens."""

    cache: Any
    lengths: torch.Tensor
    logits: torch.Tensor


class KVBatch:
    """Cache of [rows, heads, columns, head size] per layer, and each row's count of tokens."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._cache: Any = None
        self._lengths = torch.zeros(0, dtype=torch.long, device=device)

    def __len__(self) -> int:
        return int(self._lengths.shape[0])

    def prefill(self, prompts: Sequence[Sequence[int]], *, keep: int = 1) -> Prefill:
        """Run prompts by themselves, without joining them, and keep the logits after each of
        their last `keep` tokens."""
        cache = DynamicCache()
        longest = max(map(len, prompts))
        lengths = torch.tensor([len(ids) for ids in prompts], device=self._device)
        tokens = torch.tensor(
            [[*[0] * (longest - len(ids)), *ids] for ids in prompts], device=self._device
        )
        mask = positions = None
        if bool((lengths != longest).any()):
            mask = _mask(lengths, longest)
            positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        output = self._model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        return Prefill(cache, lengths, output.logits)

    def join(self, prefill: Prefill, copies: Sequence[int]) -> None:
        """Append `copies[i]` rows with the cache of prompt i.

        If memory runs out on the way, some layers have the new rows and some don't: then the
        whole batch is cleared before the error goes on.
        """
        cache, lengths = prefill.cache, prefill.lengths
        if any(count != 1 for count in copies):
            index = torch.arange(len(copies), device=self._device).repeat_interleave(
                torch.tensor(copies, device=self._device)
            )
            cache.batch_select_indices(index)
            lengths = lengths[index]
        if self._cache is None:
            self._cache, self._lengths = cache, lengths
            return
        columns = max(int(cache.get_seq_length()), int(self._cache.get_seq_length()))
        try:
            for mine, theirs in zip(self._cache.layers, cache.layers, strict=True):
                mine.keys = _joined(mine.keys, theirs.keys, columns)
                mine.values = _joined(mine.values, theirs.values, columns)
        except RuntimeError:
            self.clear()
            raise
        self._lengths = torch.cat([self._lengths, lengths])

    def step(self, tokens: Sequence[int]) -> torch.Tensor:
        """Feed one token per row; returns the logits [rows, vocabulary] after it."""
        columns = int(self._cache.get_seq_length()) + 1
        lengths = self._lengths + 1
        mask = None
        if bool((lengths != columns).any()):
            mask = _mask(lengths, columns)
        output = self._model(
            input_ids=torch.tensor(tokens, dtype=torch.long, device=self._device)[:, None],
            attention_mask=mask,
            position_ids=self._lengths[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        self._lengths = lengths
        return output.logits[:, -1]

    def keep(self, rows: Sequence[int]) -> None:
        """Let all other rows leave, and drop the columns that are padding in every row left."""
        if not rows:
            self.clear()
            return
        index = torch.tensor(rows, dtype=torch.long, device=self._device)
        self._lengths = self._lengths[index]
        columns = int(self._lengths.max())
        for layer in self._cache.layers:
            layer.keys = layer.keys[index, :, -columns:]
            layer.values = layer.values[index, :, -columns:]

    def clear(self) -> None:
        """Forget every row."""
        self._cache = None
        self._lengths = self._lengths[:0]


def _mask(lengths: torch.Tensor, columns: int) -> torch.Tensor:
    """1 where a row's real tokens stand, 0 on the padding before them; [rows, columns]."""
    column = torch.arange(columns, device=lengths.device)
    return (column[None, :] >= (columns - lengths)[:, None]).long()


def _joined(ours: torch.Tensor, theirs: torch.Tensor, columns: int) -> torch.Tensor:
    return torch.cat([_widen(ours, columns), _widen(theirs, columns)])


def _widen(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """Pad [rows, heads, columns, size] on the left of its columns."""
    missing = columns - tensor.shape[-2]
    return pad(tensor, (0, 0, missing, 0)) if missing else tensor

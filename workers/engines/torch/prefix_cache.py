"""A cache of computed beginnings of prompts, with their keys and values.

A role's prompt and the earlier turns of a conversation occur again and again. The cache keeps whole
finished sequences and evicts the least recently used one first. A beginning is shared only within
one version of an adapter: the same tokens have other keys and values under another version
(llama.cpp#26207). The model is always the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import common_prefix, shares_more
from loopline.workers.engines.torch.kv_cache import States


@dataclass(eq=False)
class Entry:
    """A finished sequence and its states."""

    adapter: AdapterVersion | None
    tokens: list[int]
    states: States


class PrefixCache:
    """Cache of the states of finished sequences, of at most `budget` tokens."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._kept: list[Entry] = []
        """Entries, least recently used first."""

    @property
    def tokens(self) -> int:
        """Number of tokens in the cache."""
        return sum(len(entry.tokens) for entry in self._kept)

    def longest(
        self, adapter: AdapterVersion | None, ids: Sequence[int], more_than: int
    ) -> tuple[States, int]:
        """Return the states of the longest cached beginning of `ids`, and its length in tokens; an
        empty list and `more_than` if no beginning is longer than `more_than`."""
        best: Entry | None = None
        most = more_than
        for entry in self._kept:
            if entry.adapter is adapter and shares_more(entry.tokens, ids, most):
                best, most = entry, common_prefix(entry.tokens, ids)
        if best is None:
            return [], more_than
        self._kept.remove(best)
        self._kept.append(best)
        return [(keys[:, :most], values[:, :most]) for keys, values in best.states], most

    def put(
        self, adapter: AdapterVersion | None, tokens: list[int], states: Callable[[], States]
    ) -> None:
        """Keep a sequence; `states` is called for its states unless they are already here."""
        if len(tokens) > self.budget:
            return
        count = len(tokens)
        entries = [entry for entry in self._kept if entry.adapter is adapter]
        for entry in entries:
            if entry.tokens[:count] == tokens:
                self._kept.remove(entry)
                self._kept.append(entry)
                return
        for entry in entries:
            if tokens[: len(entry.tokens)] == entry.tokens:
                self._kept.remove(entry)
        while self.tokens + count > self.budget:
            self._kept.pop(0)
        self._kept.append(
            Entry(adapter, tokens, [(keys.clone(), values.clone()) for keys, values in states()])
        )

    def forget(self, adapter: AdapterVersion) -> None:
        """Drop everything that was computed with this version."""
        self._kept = [entry for entry in self._kept if entry.adapter is not adapter]

    def clear(self) -> None:
        self._kept = []

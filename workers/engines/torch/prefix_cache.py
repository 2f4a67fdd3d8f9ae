"""Beginnings of prompts that were computed before, with their keys and values.

A role's prompt and the earlier turns of a conversation come again and again. What is kept is
whole finished sequences, the least recently used of which is given up first. A beginning is
shared only within one version of an adapter: the same tokens have other keys and values under
another (llama.cpp#26207). The model is the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import common_prefix, shares_more
from loopline.workers.engines.torch.kv_cache import States


@dataclass(eq=False)
class Kept:
    """One sequence."""

    adapter: AdapterVersion | None
    tokens: list[int]
    states: States


class PrefixCache:
    """At most `budget` tokens."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._kept: list[Kept] = []
        """The least recently used first."""

    @property
    def tokens(self) -> int:
        """That are kept now."""
        return sum(len(kept.tokens) for kept in self._kept)

    def longest(
        self, adapter: AdapterVersion | None, ids: Sequence[int], more_than: int
    ) -> tuple[States, int]:
        """The states of the longest beginning of `ids`, and how many tokens that is; an empty
        list and `more_than`, if there is no longer one than that."""
        best: Kept | None = None
        most = more_than
        for kept in self._kept:
            if kept.adapter is adapter and shares_more(kept.tokens, ids, most):
                best, most = kept, common_prefix(kept.tokens, ids)
        if best is None:
            return [], more_than
        self._kept.remove(best)
        self._kept.append(best)
        return [(keys[:, :most], values[:, :most]) for keys, values in best.states], most

    def put(
        self, adapter: AdapterVersion | None, tokens: list[int], states: Callable[[], States]
    ) -> None:
        """Keep a sequence; `states` is asked for them, if they are not here already."""
        if len(tokens) > self.budget:
            return
        count = len(tokens)
        mine = [kept for kept in self._kept if kept.adapter is adapter]
        for kept in mine:
            if kept.tokens[:count] == tokens:
                self._kept.remove(kept)
                self._kept.append(kept)
                return
        for kept in mine:
            if tokens[: len(kept.tokens)] == kept.tokens:
                self._kept.remove(kept)
        while self.tokens + count > self.budget:
            self._kept.pop(0)
        self._kept.append(
            Kept(adapter, tokens, [(keys.clone(), values.clone()) for keys, values in states()])
        )

    def forget(self, adapter: AdapterVersion) -> None:
        """Give up all that was computed with this version."""
        self._kept = [kept for kept in self._kept if kept.adapter is not adapter]

    def clear(self) -> None:
        self._kept = []

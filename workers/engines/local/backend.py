"""What a kind of model does for the scheduler: the keys and values of rows, passes, adapters.

A backend says how a pass is made and what there is memory for; the scheduler decides which rows
run, set back and ended, and sends the answers (see `Scheduler`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from loopline.agents.records import Message, ToolSpec
from loopline.agents.template_options import TemplateValue
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import TextCodec

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from loopline.workers.engines.local.row import Row

WORTH_SHARING = 16
"""Tokens of a beginning that are worth waiting for, or a copy, instead of being computed again."""


class Loaded(Protocol):
    """Weights in memory, with what the scheduler needs to know about them."""

    @property
    def base(self) -> str:
        """See `Engine.base`."""
        ...

    @property
    def codec(self) -> TextCodec: ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a completion."""
        ...

    @property
    def max_context(self) -> int: ...

    @property
    def vocabulary(self) -> int:
        """The width of the model's logits."""
        ...

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        options: Mapping[str, TemplateValue] | None = None,
    ) -> str:
        """The conversation by the model's chat template, told `options` over the pool's own. Raises
        ValueError with its refusal, also of an option that it does not read."""
        ...

    def grammar_tokenizer(self) -> LLTokenizer:
        """Tokenizer for constrained decoding; making it takes seconds for a large vocabulary."""
        ...


L_co = TypeVar("L_co", bound=Loaded, covariant=True)


@dataclass(frozen=True)
class Shortage:
    """A pass for which there was not enough memory."""

    reason: str
    alone: EngineError
    """The refusal of a request that does not fit even alone."""
    halve: bool
    """Whether the missing amount is unknown: half as many rows are tried, for a while. Otherwise
    the youngest row is set back."""


class Backend(Protocol[L_co]):
    """A model in memory, and the keys and values of the running rows. Apart from `read_adapter`,
    everything runs in the scheduler's thread, within `context()`, and begins with `load`."""

    kind: str
    """The engine's name, for its messages."""
    reads_apart: bool
    """Prompts are read in passes of their own, before the other rows go on."""

    def __init__(self, settings: ModelSettings) -> None: ...

    def load(self) -> L_co:
        """Read the model into memory. Raises EngineError."""
        ...

    def unload(self) -> None:
        """Release the model after the last pass, or after a `load` whose model was refused."""
        ...

    def context(self) -> AbstractContextManager[object]:
        """What every pass runs within."""
        ...

    @property
    def max_rows(self) -> int:
        """Rows that can run at once."""
        ...

    @property
    def kv_capacity(self) -> int | None:
        """Tokens whose keys and values it has room for; None where only the memory bounds it."""
        ...

    # Rows: from `enter` to `finish` or `drop`.

    def find_prefix(self, adapter: AdapterVersion | None, ids: Sequence[int]) -> tuple[Any, int]:
        """The longest beginning of `ids` in memory that was computed with this very version of the
        adapter, and how many tokens that is. Valid until the next pass."""
        ...

    def room_for(self, row: Row, rows: Sequence[Row], passed: Sequence[Row], places: int) -> bool:
        """Whether `row` may join `rows`, at most `places` of them at once; those that `passed` wait
        for the reading of one of `rows` and come next. Where a `Shortage` halves the places,
        siblings take one each: otherwise as many would be admitted again."""
        ...

    def joins(self, row: Row, reading: Sequence[Row]) -> bool:
        """Whether `row` can be read in one pass with these, which are about to be read."""
        ...

    def enter(self, row: Row, prefix: Any) -> None:
        """Admit a row, after a prefix of `row.fed` tokens that `find_prefix` gave."""
        ...

    def plan(self, rows: Sequence[Row]) -> dict[Row, int]:
        """The rows of the next pass, and how many tokens of each are fed. Raises an exception that
        `shortage` knows if there is no room for it."""
        ...

    def step(self, feeds: Mapping[Row, int]) -> Any:
        """Feed each row its next tokens. Returns logits [sum of `row.wanted(count)`, vocabulary] in
        the order of the feeds, valid until the next pass. `row.fed` is the caller's to advance."""
        ...

    def fork(self, row: Row, siblings: Sequence[Row], places: int) -> Sequence[Row]:
        """Let siblings, which have the same prompt, go on from where `row` is. Returns those that
        do: as many as there are places, or all."""
        ...

    def finish(self, rows: Sequence[Row]) -> None:
        """Let rows leave that have ended; what was computed of them may serve later prompts."""
        ...

    def drop(self, rows: Sequence[Row]) -> None:
        """Let rows leave whose keys and values must not be used: cancelled, failed or set back."""
        ...

    def lost(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Running rows whose keys and values were lost in a failed pass."""
        ...

    def recompute_logprobs(self, rows: Sequence[Row]) -> None:
        """Recompute log-probabilities before finished rows are delivered: see `plain_logprobs` of
        the settings."""
        ...

    def score(self, ids: Sequence[int], adapter: AdapterVersion | None) -> list[float]:
        """See `Engine.score`; the ids are checked."""
        ...

    # Memory.

    def shortage(self, error: Exception) -> Shortage | None:
        """What to do about an exception out of a pass; None if it is not a want of memory."""
        ...

    def release(self) -> None:
        """Give up what is kept of finished rows, since memory ran out."""
        ...

    def in_work(self) -> dict[str, int]:
        """See `LocalEngine.in_work`: what rows hold."""
        ...

    # Adapters.

    def read_adapter(self, path: str) -> Any:
        """What can be read of an adapter while rows go on; called in a thread of its own. Takes
        seconds where the base is large. Raises EngineError `bad_request`."""
        ...

    def load_adapter(self, read: Any) -> Any:
        """Take an adapter into memory, of what `read_adapter` gave: the weights of an
        `AdapterVersion`. Raises EngineError."""
        ...

    def forget_adapter(self, adapter: AdapterVersion) -> None:
        """Give back the memory of an adapter, and all that was computed with it."""
        ...


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two lists have in common at their beginnings. Asked of every prompt and
    everything in memory, so it compares a few slices and not token by token."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def shares_more(tokens: Sequence[int], ids: Sequence[int], count: int) -> bool:
    """Whether two lists have more than `count` tokens in common at their beginnings."""
    if len(tokens) <= count or len(ids) <= count or tokens[count] != ids[count]:
        return False  # most of those that do not
    return tokens[: count + 1] == ids[: count + 1]

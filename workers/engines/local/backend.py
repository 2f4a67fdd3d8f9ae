"""What a kind of model implements for the scheduler: the rows' keys and values, passes, adapters.

A backend decides how a pass is made and what fits in memory; the scheduler decides which rows run,
are preempted or finish, and sends the answers (see `Scheduler`).
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
"""A shared beginning of this many tokens is worth a wait or a copy, rather than a second
computation."""


class Loaded(Protocol):
    """Weights in memory, with the facts about them that the scheduler needs."""

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
        """Render the conversation with the model's chat template; `options` override the pool's
        own. Raises ValueError with the template's refusal, also for an option that it does not
        read."""
        ...

    def grammar_tokenizer(self) -> LLTokenizer:
        """Tokenizer for constrained decoding; building it takes seconds for a large vocabulary."""
        ...


L_co = TypeVar("L_co", bound=Loaded, covariant=True)


@dataclass(frozen=True)
class Shortage:
    """A pass that ran out of memory."""

    reason: str
    alone: EngineError
    """The refusal of a request that does not fit even on its own."""
    halve: bool
    """Whether the missing amount is unknown: then half as many rows are tried for a while.
    Otherwise the youngest row is preempted."""


class Backend(Protocol[L_co]):
    """A model in memory, and the keys and values of the running rows. Everything except
    `read_adapter` runs in the scheduler's thread, within `context()`, after `load`."""

    kind: str
    """The engine's name in messages."""
    reads_apart: bool
    """Prompts are read in separate passes, before the other rows continue."""

    def __init__(self, settings: ModelSettings) -> None: ...

    def load(self) -> L_co:
        """Read the model into memory. Raises EngineError."""
        ...

    def unload(self) -> None:
        """Release the model, after the last pass or after a `load` whose model was refused."""
        ...

    def context(self) -> AbstractContextManager[object]:
        """The context in which every pass runs."""
        ...

    @property
    def max_rows(self) -> int:
        """Number of rows that can run at once."""
        ...

    @property
    def kv_capacity(self) -> int | None:
        """Tokens whose keys and values fit; None if only the memory limits them."""
        ...

    # Rows: from `enter` to `finish` or `drop`.

    def find_prefix(self, adapter: AdapterVersion | None, ids: Sequence[int]) -> tuple[Any, int]:
        """The longest prefix of `ids` in memory that was computed with this exact version of the
        adapter, and its number of tokens. Valid until the next pass."""
        ...

    def room_for(self, row: Row, rows: Sequence[Row], passed: Sequence[Row], places: int) -> bool:
        """Whether `row` may join `rows`, with at most `places` of them at once; the `passed` rows
        wait for the reading of one of `rows` and come next. After a `Shortage` has halved the
        places, each sibling takes one: otherwise the same number would be admitted again."""
        ...

    def joins(self, row: Row, reading: Sequence[Row]) -> bool:
        """Whether `row` can be read in one pass with the rows in `reading`."""
        ...

    def enter(self, row: Row, prefix: Any) -> None:
        """Admit a row, after a prefix of `row.fed` tokens that `find_prefix` returned."""
        ...

    def plan(self, rows: Sequence[Row]) -> dict[Row, int]:
        """The rows of the next pass, with the number of tokens to feed to each. Raises an exception
        that `shortage` recognizes if there is no room for the pass."""
        ...

    def step(self, feeds: Mapping[Row, int]) -> Any:
        """Feed each row its next tokens. Returns logits [sum of `row.wanted(count)`, vocabulary] in
        the order of the feeds, valid until the next pass. The caller advances `row.fed`."""
        ...

    def fork(self, row: Row, siblings: Sequence[Row], places: int) -> Sequence[Row]:
        """Let siblings, which have the same prompt, continue from the state of `row`. Returns those
        that do: as many as there are places, or all."""
        ...

    def finish(self, rows: Sequence[Row]) -> None:
        """Release finished rows; their keys and values may serve later prompts."""
        ...

    def drop(self, rows: Sequence[Row]) -> None:
        """Release rows whose keys and values must not be reused: cancelled, failed or preempted."""
        ...

    def lost(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Running rows whose keys and values a failed pass has lost."""
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
        """How to react to an exception from a pass; None if it is not a lack of memory."""
        ...

    def release(self) -> None:
        """Release the cache of finished rows, because memory ran out."""
        ...

    def in_use(self) -> dict[str, int]:
        """See `LocalEngine.in_use`: the part that rows occupy."""
        ...

    # Adapters.

    def read_adapter(self, path: str) -> Any:
        """The part of an adapter that can be read while rows run; called in a separate thread.
        Takes seconds if the base is large. Raises EngineError `bad_request`."""
        ...

    def load_adapter(self, read: Any) -> Any:
        """Load into memory an adapter that `read_adapter` returned: the weights of an
        `AdapterVersion`. Raises EngineError."""
        ...

    def forget_adapter(self, adapter: AdapterVersion) -> None:
        """Release the memory of an adapter, and everything that was computed with it."""
        ...


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two lists. It is called for every prompt with every sequence
    in memory, so it compares a few slices rather than single tokens."""
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
    """Whether the common prefix of two lists is longer than `count` tokens."""
    if len(tokens) <= count or len(ids) <= count or tokens[count] != ids[count]:
        return False  # rejects most pairs early
    return tokens[: count + 1] == ids[: count + 1]

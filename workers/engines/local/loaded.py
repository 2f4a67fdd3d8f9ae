"""What a decoder needs of a model in memory, whatever holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from loopline.agents.records import Message, ToolSpec
from loopline.workers.engines.text.chat_prompt import TextCodec

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class Loaded(Protocol):
    """Weights in memory, with what a decoder needs to know about them."""

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

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """The conversation by the model's chat template. Raises ValueError with its refusal."""
        ...

    def grammar_tokenizer(self) -> LLTokenizer:
        """For constrained decoding; takes seconds for a large vocabulary."""
        ...

    def check_base_of(self, adapter: str) -> None:
        """Raises EngineError `bad_request` for the adapter at this path if it says to be of other
        weights. May read all files of the model; called in a thread of its own."""
        ...

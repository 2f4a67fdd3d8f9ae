"""Follows one row through its grammar, token by token."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from loopline.workers.engines.grammar.schema_limits import refusal

if TYPE_CHECKING:
    from llguidance import LLMatcher


class Matcher(Protocol):
    """One row's position in its grammar. Not thread-safe."""

    @property
    def allowed(self) -> bytes | None:
        """Mask of the next token: one bit per token id, the lowest bit of each byte first; None if
        every token is allowed. Never empty while the matcher is not `complete`."""
        ...

    @property
    def complete(self) -> bool:
        """Whether nothing can be added: the row then ends without an end-of-turn token."""
        ...

    def consume(self, token: int) -> None:
        """Consume the token that was sampled; not for end-of-turn tokens.

        Raises EngineError: `bad_request` if the token does not fit the grammar, or if the next step
        exceeds llguidance's limits.
        """
        ...

    def copy(self) -> Self:
        """Another matcher at the same position, for another row; takes microseconds."""
        ...


@dataclass(eq=False)
class Lexer:
    """State that all copies of one compiled grammar share: llguidance's cache of lexer states. It
    makes masks cheaper with every use, but when it is full, no copy can continue."""

    full: bool = False


class GrammarMatcher:
    """A `Matcher` that stays within one llguidance grammar from its first to its last token. The
    model's end-of-turn tokens are allowed exactly when the text so far is a complete instance."""

    def __init__(
        self, state: LLMatcher, ends_only: bytes, subject: str, lexer: Lexer | None = None
    ) -> None:
        """`subject` is the beginning of every refusal."""
        self._state = state
        self._ends_only = ends_only
        self._subject = subject
        self.lexer = lexer or Lexer()
        self.allowed = b""
        self.complete = False
        self._look_ahead()

    def consume(self, token: int) -> None:
        """See `Matcher.consume`."""
        self._state.consume_token(token)
        self._look_ahead()

    def behind(self, tokens: list[int]) -> Self | None:
        """A copy that has consumed all these tokens; None if they do not fit the grammar."""
        state = self._state.deep_copy()
        if state.validate_tokens(tokens) < len(tokens):
            return None
        state.consume_tokens(tokens)
        clone = copy.copy(self)
        clone._state = state
        clone._look_ahead()
        return clone

    def copy(self) -> Self:
        """See `Matcher.copy`."""
        clone = copy.copy(self)
        clone._state = self._state.deep_copy()
        return clone

    def _look_ahead(self) -> None:
        if not self._state.is_stopped():
            self.allowed = self._state.compute_bitmask()
        # Check only after the mask is computed: its limits may have stopped the matcher.
        if self._state.is_error():
            error = self._state.get_error()
            self.lexer.full |= "lexer error" in error
            raise refusal(self._subject, error)
        self.complete = self._state.is_stopped() or self.allowed == self._ends_only
        if not self.complete and self.allowed.count(0) == len(self.allowed):
            raise refusal(self._subject, "no token of this model's vocabulary can follow")

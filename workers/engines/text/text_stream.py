"""From a stream of tokens to a stream of text: whole characters, and nothing past a stop string.

Two things must not reach a reader: half a character (a token may end in the middle of one), and
the beginning of a stop string that the next token completes. Both are held back until it is
clear what they are. What has been released never changes, and the released pieces joined are the
completion's text.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopline.workers.engines.text.chat_prompt import TextCodec

REPLACEMENT = "�"
"""What a decoder writes for bytes that are no character, or not yet one."""

MAX_HELD_TOKENS = 64
"""A real character is whole after at most 4 tokens. Only a model that writes garbage holds back
more; past this many they are released as they decode, so that the cost stays linear."""


class TextStream:
    """Text of one completion, token by token."""

    def __init__(
        self, codec: TextCodec, stop: Sequence[str] = (), after: int | None = None
    ) -> None:
        """`after` is the last id of the prompt."""
        self._codec = codec
        self._after = after
        self._stop = tuple(s for s in stop if s)
        self._pending: list[int] = []
        self._text = ""
        self._released = 0
        self.stopped = False
        """True once a stop string was found; the text ends before it."""

    @property
    def text(self) -> str:
        """Everything decoded so far, cut before the stop string."""
        return self._text

    def push(self, token: int) -> str:
        """Take one token; returns what may be shown now (possibly nothing)."""
        self._pending.append(token)
        piece = self._codec.decode(self._pending, self._after)
        if piece.endswith(REPLACEMENT) and len(self._pending) < MAX_HELD_TOKENS:
            return ""
        return self._take(piece)

    def finish(self) -> str:
        """The end: whatever was held back and is not part of a stop string's match."""
        shown = ""
        if self._pending and not self.stopped:
            shown = self._take(self._codec.decode(self._pending, self._after))
        rest = self._text[self._released :]
        self._released = len(self._text)
        return shown + rest

    def _take(self, piece: str) -> str:
        self._after = self._pending[-1]
        self._pending.clear()
        if self.stopped:
            return ""
        # A match may begin in text already decoded, but never in text already released.
        self._text += piece
        cut = min(
            (at for s in self._stop if (at := self._text.find(s, self._released)) >= 0), default=-1
        )
        if cut >= 0:
            self._text = self._text[:cut]
            self.stopped = True
        end = len(self._text) - (0 if self.stopped else self._held_back())
        shown = self._text[self._released : end]
        self._released = max(self._released, end)
        return shown

    def _held_back(self) -> int:
        """Length of the longest end of the text that could be the beginning of a stop string."""
        longest = 0
        for s in self._stop:
            for length in range(min(len(s) - 1, len(self._text) - self._released), longest, -1):
                if self._text.endswith(s[:length]):
                    longest = length
                    break
        return longest

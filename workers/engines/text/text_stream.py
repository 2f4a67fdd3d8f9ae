"""Stream of text made from tokens or pieces: whole characters, and nothing past a stop string.

Two things must not reach a reader: an incomplete character (a token may end in the middle of one),
and the beginning of a stop string that a later token completes. Both are held back until they are
complete or ruled out. Released text never changes, and the released pieces joined are the
completion's text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loopline.workers.engines.text.chat_prompt import TextCodec

REPLACEMENT = "�"
"""What a decoder writes for bytes that are not (yet) a character."""

MAX_HELD_TOKENS = 64
"""A real character is complete after at most 4 tokens. Only a model that writes garbage holds back
more; beyond this number they are released as decoded, so that the cost stays linear."""


def join_surrogates(text: str) -> str:
    """Join the adjacent halves of surrogate pairs into characters; a single half becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class ArrivingText:
    """Takes pieces of text and releases those that may be shown."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = tuple(filter(None, stop))
        self.raw = ""
        """All text that has arrived, truncated before the stop string."""
        self._released = 0
        self.stopped = False
        """True once a stop string was found; the text ends before it."""

    @property
    def text(self) -> str:
        return join_surrogates(self.raw)

    def push(self, piece: str) -> str:
        """Add a piece; returns the text that may now be shown (possibly empty)."""
        if self.stopped:
            return ""
        # A match may start in text that arrived earlier, but never in released text.
        self.raw += piece
        cut = min(
            (at for s in self._stop if (at := self.raw.find(s, self._released)) >= 0), default=-1
        )
        if cut >= 0:
            self.raw, self.stopped = self.raw[:cut], True
        return self._release(len(self.raw) - (0 if self.stopped else self._held_back_length()))

    def finish(self) -> str:
        """Finish the text: returns any text that was held back."""
        return self._release(len(self.raw))

    def _release(self, end: int) -> str:
        chunk = self.raw[self._released : end]
        self._released = max(self._released, end)
        return join_surrogates(chunk)

    def _held_back_length(self) -> int:
        """Length of the longest end of the text that the next piece may complete: the first half of
        a surrogate pair, or the beginning of a stop string."""
        longest = int("\ud800" <= self.raw[-1:] <= "\udbff")
        for s in self._stop:
            for length in range(min(len(s) - 1, len(self.raw) - self._released), longest, -1):
                if self.raw.endswith(s[:length]):
                    longest = length
                    break
        return longest


class TextStream:
    """Text of one completion, token by token."""

    def __init__(
        self, codec: TextCodec, stop: Sequence[str] = (), after: int | None = None
    ) -> None:
        """`after` is the last id of the prompt."""
        self._codec = codec
        self._after = after
        self._pending: list[int] = []
        self._arriving = ArrivingText(stop)

    @property
    def stopped(self) -> bool:
        """See `ArrivingText.stopped`."""
        return self._arriving.stopped

    @property
    def text(self) -> str:
        """All text decoded so far, truncated before the stop string."""
        return self._arriving.raw

    def push(self, token: int) -> str:
        """Add a token; returns the text that may now be shown (possibly empty)."""
        self._pending.append(token)
        piece = self._codec.decode(self._pending, self._after)
        if piece.endswith(REPLACEMENT) and len(self._pending) < MAX_HELD_TOKENS:
            return ""
        self._after = token
        self._pending.clear()
        return self._arriving.push(piece)

    def finish(self) -> str:
        """Finish the text: returns any held-back text that is not part of a stop string."""
        text = ""
        if self._pending:
            text = self._arriving.push(self._codec.decode(self._pending, self._after))
            self._pending.clear()
        return text + self._arriving.finish()


def token_texts(
    codec: TextCodec, ids: Sequence[int], after: int | None = None, ends: Collection[int] = ()
) -> tuple[str, ...]:
    """The text of each token; the token before the first one is `after`. A token in `ends` has an
    empty text. A token whose bytes are not complete characters is U+FFFD."""
    texts: list[str] = []
    for token in ids:
        text = "" if token in ends else codec.decode([token], after)
        texts.append(REPLACEMENT if REPLACEMENT in text else text)
        after = token
    return tuple(texts)

"""The text of one completion as it arrives: characters whole, and nothing past a stop string."""

from __future__ import annotations

from collections.abc import Sequence


def whole_characters(text: str) -> str:
    """Halves of a surrogate pair that stand together become their character, a half alone
    becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class ArrivingText:
    """Pieces in, what may be shown out. `stop`: where the endpoint cannot be told of these strings,
    the text ends before the first of them here."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = tuple(filter(None, stop))
        self._shown: list[str] = []
        self._held = ""
        self.stopped = False

    @property
    def text(self) -> str:
        """What was shown, in one piece."""
        return "".join(self._shown)

    def push(self, piece: str) -> str:
        """Take a piece; returns what can be shown by now."""
        if self.stopped:
            return ""
        self._held += piece
        return self._show(len(self._held) - self._kept())

    def finish(self) -> str:
        """Nothing more comes."""
        return self._show(len(self._held))

    def _show(self, end: int) -> str:
        at = [place for s in self._stop if (place := self._held.find(s)) >= 0]
        if at:
            self.stopped, end = True, min(at)
        shown = whole_characters(self._held[:end])
        self._held = "" if self.stopped else self._held[end:]
        if shown:
            self._shown.append(shown)
        return shown

    def _kept(self) -> int:
        """Characters at the end that the next piece may complete: the first half of a pair, the
        beginning of a stop string."""
        kept = int("\ud800" <= self._held[-1:] <= "\udbff")
        for s in self._stop:
            for length in range(min(len(s) - 1, len(self._held)), kept, -1):
                if self._held.endswith(s[:length]):
                    kept = length
                    break
        return kept

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TextPiece:
    kind: Literal["content", "reasoning"]
    text: str


class VisibleText:
    def __init__(self, opened: bool = False, offered: tuple[str, ...] = ()) -> None:
        pass

    def feed(self, piece: str) -> list[TextPiece]:
        return [TextPiece("content", piece)] if piece else []

    def finish(self) -> list[TextPiece]:
        return []

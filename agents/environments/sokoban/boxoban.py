"""Reads levels in the text form of Boxoban (google-deepmind/boxoban-levels): a line `; number`,
then the rows of a level, then an empty line. The signs are those of `level`."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from loopline.agents.environments.sokoban.instance import SokobanInstance, SokobanSetting


@dataclass(frozen=True)
class BoxobanLevel:
    """A level of a file."""

    number: str
    """Text after the semicolon."""
    instance: SokobanInstance


def read_boxoban(
    text: str, *, origin: str, setting: SokobanSetting | None = None
) -> list[BoxobanLevel]:
    """Return every level of a file's text. `origin` names the file in errors.

    Raises ValueError for rows without a number, a number without rows, and an unplayable level. The
    published folders are the splits of these levels.
    """
    levels: list[BoxobanLevel] = []
    for number, place, rows in _blocks(text, origin):
        where = f"{origin}, line {place}, level {number}"
        if not rows:
            raise ValueError(f"{where}: it has no rows")
        try:
            instance = SokobanInstance(level=tuple(rows), setting=setting or SokobanSetting())
        except ValidationError as error:
            raise ValueError(f"{where}: {error.errors(include_url=False)[0]['msg']}") from error
        levels.append(BoxobanLevel(number, instance))
    return levels


def _blocks(text: str, origin: str) -> list[tuple[str, int, list[str]]]:
    blocks: list[tuple[str, int, list[str]]] = []
    for place, line in enumerate(text.splitlines(), 1):
        if line.startswith(";"):
            blocks.append((line[1:].strip(), place, []))
        elif line.strip():
            if not blocks:
                raise ValueError(f"{origin}, line {place}: a row comes before the first `; number`")
            blocks[-1][2].append(line)
    return blocks

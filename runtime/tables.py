"""Tables for terminals of any width: numbers are folded where there is no room, never cut off."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def figures(*columns: str, words: Collection[str] = (), title: str = "") -> Table:
    """A table for rich: the columns in `words` begin at the left, the others, numbers, end at the
    right."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=escape(title), title_justify="left", box=None, pad_edge=False, header_style="dim"
    )
    for column in columns:
        justify = "left" if column in words else "right"
        table.add_column(escape(column), justify=justify, overflow="fold")
    return table


def listing(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()
) -> list[str]:
    """Lines of even columns, the heading first. They may be longer than the terminal is wide: an
    id stays whole, to be copied."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for name, cell, width in zip(head, row, widths, strict=True)
        ).rstrip()
        for row in (head, *rows)
    ]


def one_line(text: str) -> str:
    """As much of it as the terminal's width holds; all of it where there is no terminal."""
    width = get_terminal_size((len(text), 0)).columns
    return text if len(text) <= width else f"{text[: width - 1]}…"

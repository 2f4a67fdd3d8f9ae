"""Tables for terminals of any width: without space, numbers are wrapped, never truncated."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from loopline.runtime.terminal.safe_text import sanitize, sanitize_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED_WIDTH = 140
"""Columns of output to a pipe, a file or a log."""


def output_console(width: int = PIPED_WIDTH) -> Console:
    """Return a console for results on stdout: as wide as the terminal, or else `width` columns, so
    that piped output does not depend on the viewer."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else width)


def new_table(*columns: str, words: Collection[str] = (), title: str = "") -> Table:
    """Return a table for rich: the columns in `words` are left-aligned, all others are numbers and
    right-aligned. A cell of plain text can't affect a terminal; it may contain rich markup."""
    from rich.console import RenderableType
    from rich.markup import escape
    from rich.table import Table

    class Harmless(Table):
        def add_row(self, *cells: RenderableType | None, **how: Any) -> None:
            super().add_row(*(sanitize(c) if isinstance(c, str) else c for c in cells), **how)

    table = Harmless(
        title=escape(sanitize(title)),
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="dim",
    )  # fmt: skip
    for column in columns:
        justify = "left" if column in words else "right"
        table.add_column(escape(sanitize(column)), justify=justify, overflow="fold")
    return table


def align_columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()
) -> list[str]:
    """Return lines of aligned columns, heading first; their cells are sanitized. Lines may be wider
    than the terminal: an id stays whole, so that it can be copied."""
    rows = [tuple(map(sanitize_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for name, cell, width in zip(head, row, widths, strict=True)
        ).rstrip()
        for row in (head, *rows)
    ]


def truncate_to_terminal(text: str) -> str:
    """Truncate the text to the terminal's width; return all of it without a terminal."""
    text = sanitize_line(text)
    width = get_terminal_size((len(text), 0)).columns
    return text if len(text) <= width else f"{text[: width - 1]}…"

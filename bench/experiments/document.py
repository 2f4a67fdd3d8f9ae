"""The report of an experiment, written once and rendered for a terminal and as Markdown, HTML and
JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.agents.records import Record
from loopline.bench.report.markdown import table as markdown_table
from loopline.runtime.terminal.pages.page import figure, page, table
from loopline.trainers.core.json_records import write_record
from loopline.workers.atomic_files import write_atomic

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 140
"""Width of the output without a terminal, in columns."""
Table = tuple[list[str], list[list[str]]]
"""Heading and rows of a table."""


@dataclass(frozen=True)
class Section:
    """Tables and drawings of one subject; a report with one subject has a single section without a
    heading."""

    tables: Mapping[str, Table]
    """Tables by caption; a table without rows is left out."""
    drawings: Collection[tuple[str, str]] = ()
    """Drawings for the page as pairs of SVG and caption; an empty SVG is left out."""
    heading: str = ""
    about: str = ""


@dataclass(frozen=True)
class Document:
    """Content of a report. It contains no markup, so a model's text stays text."""

    title: str
    about: str
    sections: Collection[Section]
    verdicts: Collection[str] = ()
    """Sentences that answer the question."""
    closing: Collection[str] = ()
    """Sentences at the end."""
    words: Collection[str] = field(default_factory=tuple[str, ...])
    """Columns, besides the first, with words instead of numbers."""


def publish(document: Document, report: Record, output: Path) -> None:
    """Write `report.md`, `report.html` and `report.json`, and show the document on the terminal."""
    import sys

    from rich.console import Console

    write(document, report, output)
    show(document, output, Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH))


def write(document: Document, report: Record, output: Path) -> None:
    """Write `report.md`, `report.html` and, with every figure, `report.json`."""
    write_atomic(output / "report.md", markdown(document))
    write_atomic(output / "report.html", html(document))
    write_record(output / "report.json", report)


def markdown(document: Document) -> str:
    """Return the whole document as Markdown."""
    blocks = [f"# {document.title}", document.about]
    if document.verdicts:
        blocks.append("\n".join(f"- {verdict}" for verdict in document.verdicts))
    for section in document.sections:
        blocks += filter(None, (f"## {section.heading}" if section.heading else "", section.about))
        for caption, (head, rows) in _filled_tables(section):
            blocks.append("\n".join([f"{caption}:", "", *markdown_table(head, rows)]))
    return "\n\n".join([*blocks, *filter(None, document.closing)]) + "\n"


def html(document: Document) -> str:
    """Return the same document as one self-contained HTML file."""
    parts = [f"<h1>{escape(document.title)}</h1>", _add_break_points(document.about)]
    parts += [f'<p class="lead">{escape(verdict)}</p>' for verdict in document.verdicts]
    for section in document.sections:
        if section.heading:
            parts.append(f"<h2>{escape(section.heading)}</h2>")
        if section.about:
            parts.append(f"<p>{escape(section.about)}</p>")
        drawn = [figure(drawing, caption) for drawing, caption in section.drawings if drawing]
        parts.append(f'<div class="two">{"".join(drawn)}</div>')
        for caption, (head, rows) in _filled_tables(section):
            parts += [f'<p class="lead">{escape(caption)}</p>', table(head, rows)]
    parts += [_add_break_points(line) for line in document.closing if line]
    return page(document.title, "\n".join(parts))


def show(document: Document, output: Path | None, console: Console) -> None:
    """Print a document on a terminal; `output` is None if nothing was written."""
    from rich.markup import escape as plain

    from loopline.runtime.terminal.tables import new_table

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say(document.about)
    for section in document.sections:
        for line in filter(None, (section.about,)):
            say(f"\n{line}")
        for caption, (head, rows) in _filled_tables(section):
            drawn = new_table(*head, words=(head[0], *document.words))
            for row in rows:
                drawn.add_row(*map(plain, row))
            # Not the table's title, which wraps if the table is narrow.
            say(f"\n{caption}:")
            console.print(drawn)
    console.print()
    place = "" if output is None else f"Report: {output / 'report.html'}"
    for line in (*document.verdicts, *document.closing, place):
        if line:
            say(line)


def _filled_tables(section: Section) -> Iterator[tuple[str, Table]]:
    return ((caption, table) for caption, table in section.tables.items() if table[1])


def _add_break_points(text: str) -> str:
    return f'<p class="soft">{escape(text)}</p>'

"""The report: its record, which is `report.json`, and its document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopline.agents.records import Record
from loopline.bench.experiments.document import Document, Section
from loopline.bench.experiments.glpft.figures import ALL, SizeFigures
from loopline.bench.experiments.glpft.grid import Common, GlpftGrid
from loopline.bench.experiments.glpft.tables import PUBLISHED, TITLE, about, heading, tables
from loopline.bench.experiments.intervals import differences_plot, solved_plot


class GlpftReport(Record):
    """All figures, with their settings."""

    settings: Common
    seeds: tuple[int, ...]
    methods: tuple[str, ...]
    sizes: dict[str, dict[str, Any]]
    published: str = PUBLISHED


def report_of(grid: GlpftGrid, sizes: Sequence[SizeFigures]) -> GlpftReport:
    """Build the report of all sizes."""
    return GlpftReport(
        settings=grid.common,
        seeds=grid.seeds,
        methods=grid.methods,
        sizes={size_figures.size: size_figures.as_json() for size_figures in sizes},
    )


def document(grid: GlpftGrid, sizes: Sequence[SizeFigures]) -> Document:
    """Document of the report for a terminal, Markdown and HTML. It contains no text of a model."""
    return Document(
        title=TITLE,
        about=about(grid),
        sections=[
            Section(
                tables(size_figures),
                _plots(size_figures),
                heading=size_figures.size,
                about=heading(size_figures),
            )
            for size_figures in sizes
        ],
        closing=(PUBLISHED,),
    )


def _plots(size: SizeFigures) -> list[tuple[str, str]]:
    solved = (
        solved_plot(
            (entry.method, entry.solved[ALL].mean, entry.solved[ALL].seeds)
            for entry in size.methods
        ),
        "Solved instructions of the three held-out splits, with the 95 % interval; the small "
        "dots are the seeds.",
    )
    if not size.differences:
        return [solved]
    return [
        solved,
        (
            differences_plot(
                (entry.first, entry.second, entry.solved[ALL]) for entry in size.differences
            ),
            "GLPFT minus another method, in percentage points, with the 95 % interval; grey if "
            "it contains zero.",
        ),
    ]

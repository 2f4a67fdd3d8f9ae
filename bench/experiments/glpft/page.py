"""The report as one HTML file that needs nothing else. Nothing that a model wrote is in it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from loopline.bench.experiments.glpft.figures import SizeFigures
from loopline.bench.experiments.glpft.plan import Plan
from loopline.bench.experiments.glpft.plots import differences_plot, solved_plot
from loopline.bench.experiments.glpft.tables import PUBLISHED, TITLE, about, heading, tables
from loopline.runtime.terminal.pages.page import figure, page, table


def render(plan: Plan, sizes: Sequence[SizeFigures]) -> str:
    """The whole page."""
    body = [
        f"<h1>{escape(TITLE)}</h1>",
        f'<p class="soft">{escape(about(plan))}</p>',
        *(_section(each) for each in sizes),
        f'<p class="soft">{escape(PUBLISHED)}</p>',
    ]
    return page(TITLE, "\n".join(body))


def _section(size: SizeFigures) -> str:
    parts = [f"<h2>{escape(size.size)}</h2>", f"<p>{escape(heading(size))}</p>"]
    figures = [
        figure(
            solved_plot(size),
            "Solved instructions of the three held-out splits, with the 95 % interval; the small "
            "dots are the seeds.",
        )
    ]
    if size.differences:
        figures.append(
            figure(
                differences_plot(size),
                "What GLPFT solves more than another method, in percentage points, with the 95 % "
                "interval; grey where it holds zero.",
            )
        )
    parts.append(f'<div class="two">{"".join(figures)}</div>')
    for caption, found in tables(size).items():
        if found[1]:
            parts += [f'<p class="lead">{escape(caption)}</p>', table(*found)]
    return "\n".join(parts)

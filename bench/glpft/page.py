"""The report as one HTML file that needs nothing else. Nothing that a model wrote is in it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from bench.glpft.figures import SizeFigures
from bench.glpft.plan import Plan
from bench.glpft.plots import differences_plot, solved_plot
from bench.glpft.tables import PUBLISHED, TITLE, Table, about, heading, tables

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(plan: Plan, sizes: Sequence[SizeFigures]) -> str:
    """The whole page."""
    style = files("bench.report").joinpath("page.css").read_text(encoding="utf-8")
    sections = "\n".join(_section(each) for each in sizes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<meta name="color-scheme" content="light dark">
<title>{escape(TITLE)}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{escape(TITLE)}</h1>
<p class="soft">{escape(about(plan))}</p>
{sections}
<p class="soft">{escape(PUBLISHED)}</p>
</main>
</body>
</html>
"""


def _section(size: SizeFigures) -> str:
    parts = [f"<h2>{escape(size.size)}</h2>", f"<p>{escape(heading(size))}</p>"]
    figures = [
        _figure(
            solved_plot(size),
            "Solved instructions of the three held-out splits, with the 95 % interval; the small "
            "dots are the seeds.",
        )
    ]
    if size.differences:
        figures.append(
            _figure(
                differences_plot(size),
                "What GLPFT solves more than another method, in percentage points, with the 95 % "
                "interval; grey where it holds zero.",
            )
        )
    parts.append(f'<div class="two">{"".join(figures)}</div>')
    for caption, found in tables(size).items():
        if found[1]:
            parts += [f'<p class="lead">{escape(caption)}</p>', _table(found)]
    return "\n".join(parts)


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(found: Table) -> str:
    head, rows = found
    first = "".join(f"<th>{escape(word)}</th>" for word in head)
    body = "".join(
        f"<tr>{''.join(f'<td class=num>{escape(word)}</td>' for word in row)}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{first}</tr>{body}</table></div>'

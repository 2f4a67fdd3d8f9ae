"""The report as one HTML file that needs nothing else. What models wrote is in it as text."""

from __future__ import annotations

from html import escape

from loopline.bench.experiments.grpo.figures import GrpoReport
from loopline.bench.experiments.grpo.plots import curves_plots, differences_plot, solved_plot
from loopline.bench.experiments.grpo.tables import about, ending, tables, title
from loopline.runtime.terminal.pages.page import figure, page, table


def render(report: GrpoReport) -> str:
    """The whole page."""
    name = title(report)
    parts = [f"<h1>{escape(name)}</h1>", f'<p class="soft">{escape(about(report))}</p>']
    drawings = [
        figure(
            solved_plot(report),
            "Held-out puzzles solved, with the 95 % interval; the small dots are the seeds.",
        )
    ]
    if report.differences:
        drawings.append(
            figure(
                differences_plot(report),
                "What one arm solves more than another, in percentage points, with the 95 % "
                "interval; grey where it holds zero.",
            )
        )
    caption = (
        "Greedy success on puzzles of the validation split, mean of the seeds and their range, "
        "over {}."
    )
    drawings += [
        figure(drawing, caption.format(over))
        for drawing, over in zip(
            curves_plots(report),
            ("completions drawn or answers imitated", "tokens through the model in training"),
            strict=True,
        )
        if drawing
    ]
    parts.append(f'<div class="two">{"".join(drawings)}</div>')
    for heading, (head, rows) in tables(report).items():
        if rows:
            parts += [f'<p class="lead">{escape(heading)}</p>', table(head, rows)]
    lines = filter(None, (report.published, ending(report)))
    parts += [f'<p class="soft">{escape(line)}</p>' for line in lines]
    return page(name, "\n".join(parts))

"""The page with the plot: one file that needs nothing else."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from loopline.bench.proofs.engine.figures import Report
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot
from loopline.runtime.terminal.pages.page import figure, page
from loopline.workers.atomic_files import write_atomic


def write(report: Report, path: Path) -> None:
    """Tokens per second over the number of requests in flight, a line for each peer."""
    places = sorted(report.figures)
    rates = {
        name: [
            Point(float(each), *report.figures[each][name].rate)
            for each in places
            if name in report.figures[each]
        ]
        for name in report.about
    }
    title = f"{report.model}: tokens per second"
    drawing = curves_plot(
        title,
        [Curve(name, points) for name, points in rates.items()],
        x_label="requests in flight",
        least=0.0,
        log_x=True,
        x_ticks=places,
    )
    caption = (
        "Tokens per second of all requests together: the median of the repeats, and in the band "
        "their least and greatest."
    )
    data = escape(json.dumps(report.as_json(), indent=1))
    body = (
        f"<h1>{escape(title)}</h1>"
        f'<p class="soft">{escape(report.machine)}; GGUF {escape(report.precision)}, torch '
        f"float32.</p>{figure(drawing, caption)}"
        f'<h2>All figures</h2><details><summary>as JSON</summary><pre class="scroll">{data}</pre>'
        "</details>"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page(f"bench engine: {report.model}", body))

"""The page with the plot: one file that needs nothing else."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from bench.engine_bench.figures import Report


def write(report: Report, path: Path) -> None:
    """Tokens per second over the number of requests in flight, a line for each peer."""
    figure: Any = go.Figure()
    for name in report.about:
        points = [
            (places, peers[name].rate)
            for places, peers in sorted(report.figures.items())
            if name in peers
        ]
        middle = [rate[0] for _, rate in points]
        figure.add_scatter(
            x=[places for places, _ in points],
            y=middle,
            name=name,
            mode="lines+markers",
            error_y={
                "array": [rate[2] - rate[0] for _, rate in points],
                "arrayminus": [rate[0] - rate[1] for _, rate in points],
            },
        )
    figure.update_layout(
        title=f"{report.model}: tokens per second",
        xaxis={"title": "requests in flight", "type": "log", "tickvals": sorted(report.figures)},
        yaxis={"title": "tokens per second (all requests together)", "rangemode": "tozero"},
        legend={"orientation": "h", "y": -0.25},
        template="plotly_white",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    data = html.escape(json.dumps(report.as_json(), indent=1))
    path.write_text(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>bench engine: {html.escape(report.model)}</title></head>"
        "<body style='font-family:sans-serif;margin:1rem'>"
        + figure.to_html(full_html=False, include_plotlyjs=True, config={"responsive": True})
        + f"<p>{html.escape(report.machine)}; GGUF {html.escape(report.precision)}, torch float32."
        f"</p><details><summary>All figures</summary><pre>{data}</pre></details></body></html>"
    )

"""The page of a proof: one self-contained HTML file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from loopline.bench.proofs.outcome import Outcome, tables
from loopline.runtime.terminal.pages.page import figure, page, table


def render(title: str, outcome: Outcome, line: Mapping[str, Any]) -> str:
    """Return the whole page; `line` is what `--json` prints."""
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="soft">{escape(outcome.about)}</p>']
    parts += [figure(plot.drawing, plot.caption) for plot in outcome.plots]
    for part in tables(outcome.measurements):
        parts += [f'<p class="lead">{escape(part.title)}</p>', table(part.head, part.rows)]
    parts += [f"<p>{escape(note)}</p>" for note in outcome.notes]
    for violation in outcome.violations:
        history = "\n".join(outcome.context(violation))
        parts.append(f"<p>violation {escape(str(violation))}</p>")
        if history:
            parts.append(f'<pre class="scroll">{escape(history)}</pre>')
    parts.append(
        "<h2>All figures</h2><details><summary>as JSON</summary>"
        f'<pre class="scroll">{escape(json.dumps(line, indent=1))}</pre></details>'
    )
    return page(title, "\n".join(parts))

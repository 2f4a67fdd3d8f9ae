"""The report: on a terminal, and in the output folder as Markdown, HTML and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loopline.bench.experiments.glpft import page
from loopline.bench.experiments.glpft.figures import SizeFigures
from loopline.bench.experiments.glpft.plan import Plan
from loopline.bench.experiments.glpft.tables import PUBLISHED, TITLE, about, heading, tables
from loopline.bench.report.markdown import table
from loopline.workers.atomic_files import write_atomic

if TYPE_CHECKING:
    from rich.console import Console


def write(plan: Plan, sizes: Sequence[SizeFigures]) -> dict[str, Any]:
    """`report.md`, `report.html` and `report.json`; returns what the last holds."""
    found = as_json(plan, sizes)
    write_atomic(plan.output / "report.md", markdown(plan, sizes))
    write_atomic(plan.output / "report.html", page.render(plan, sizes))
    write_atomic(plan.output / "report.json", json.dumps(found, indent=1) + "\n")
    return found


def as_json(plan: Plan, sizes: Sequence[SizeFigures]) -> dict[str, Any]:
    """Every figure, with what it follows from."""
    return {
        "settings": plan.common.model_dump(),
        "seeds": list(plan.seeds),
        "methods": list(plan.methods),
        "sizes": {each.size: each.as_json() for each in sizes},
        "published": PUBLISHED,
    }


def show(plan: Plan, sizes: Sequence[SizeFigures], console: Console) -> None:
    """On a terminal."""
    from loopline.runtime.terminal.tables import figures

    for each in sizes:
        _say(console, heading(each))
        for caption, (head, rows) in tables(each).items():
            if rows:
                shown = figures(*head, words=(head[0],), title=caption)
                for row in rows:
                    shown.add_row(*row)
                console.print(shown)
        console.print()
    for line in (about(plan), PUBLISHED, f"Report: {plan.output / 'report.html'}"):
        _say(console, line)


def markdown(plan: Plan, sizes: Sequence[SizeFigures]) -> str:
    """The whole document."""
    lines = [f"# {TITLE}", "", about(plan), ""]
    for each in sizes:
        lines += [f"## {each.size}", "", heading(each), ""]
        for caption, (head, rows) in tables(each).items():
            if rows:
                lines += [f"{caption}:", "", *table(head, rows), ""]
    return "\n".join([*lines, PUBLISHED]) + "\n"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

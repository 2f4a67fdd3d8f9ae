"""Writes the three reports of an output directory."""

from __future__ import annotations

import json

from loopline.bench.output import OutputDirectory
from loopline.bench.report import html, markdown
from loopline.bench.report.computation import facts_of
from loopline.bench.report.facts import Facts
from loopline.workers.atomic_files import write_atomic


def write_reports(directory: OutputDirectory) -> Facts:
    """Write report.json, report.md and report.html, each completely or not at all."""
    facts = facts_of(directory)
    path = directory.path
    text = json.dumps(facts.as_json(), ensure_ascii=False, indent=1, sort_keys=True)
    write_atomic(path / "report.json", text + "\n")
    write_atomic(path / "report.md", markdown.render(facts))
    write_atomic(path / "report.html", html.render(facts, directory.transcripts()))
    return facts

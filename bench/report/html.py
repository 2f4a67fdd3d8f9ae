"""The HTML report: one file without external resources.

Model output is hostile. It reaches the page in only two ways: escaped by the template, or packed
(gzip, base64) in a data block that the script unpacks and inserts as text. Both show control
characters, and characters that reverse or hide text, as code points.
"""

from __future__ import annotations

import base64
import gzip
import json
from importlib.resources import files
from typing import Any

from loopline.bench.report import sections
from loopline.bench.report.facts import Facts
from loopline.bench.report.plots import arm_class
from loopline.runtime.terminal.pages.page import page
from loopline.runtime.terminal.safe_text import CONTROL

CHUNK = 40
"""Number of questions whose transcripts are packed together: only opened ones are unpacked."""


def render(facts: Facts, transcripts: dict[str, dict[str, Any]]) -> str:
    """Return the whole page."""
    resources = files("loopline.bench.report")
    return page(
        sections.title(facts),
        sections.every_section(facts, transcripts),
        style=resources.joinpath("page.css").read_text(encoding="utf-8"),
        script=resources.joinpath("page.js").read_text(encoding="utf-8"),
        after='<dialog id="dialog"><div class="sheet" id="sheet"></div></dialog>\n'
        + _data_blocks(facts, transcripts),
    )


def _pack(value: object) -> str:
    """Pack a value: JSON, gzip, base64. None of its characters is special to an HTML parser."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _block(name: str, value: object) -> str:
    return f'<script type="text/plain" id="{name}">{_pack(value)}</script>'


def _data_blocks(facts: Facts, transcripts: dict[str, dict[str, Any]]) -> str:
    by_arm = {arm.name: arm for arm in facts.arms}
    unpriced_arms = {name for name, arm in facts.results["arms"].items() if arm["unpriced"]}
    runs = {arm.name: arm.by_item() for arm in facts.arms}
    items: list[dict[str, Any]] = []
    chunks: list[dict[str, Any]] = []
    for at, item in enumerate(facts.manifest.items):
        if at % CHUNK == 0:
            chunks.append({})
        row: dict[str, Any] = {
            "id": item.id,
            "q": item.question,
            "gold": item.gold,
            "about": {key: item.about[key] for key in ("split", "steps") if key in item.about},
            "k": len(chunks) - 1,
            "r": {},
        }
        for name, results in runs.items():
            result = results.get(item.id)
            if result is None:
                continue
            paid = by_arm[name].spent_on(result)
            row["r"][name] = {
                "id": result.run_id,
                "c": str(by_arm[name].classes[item.id]),
                "a": result.answer,
                "x": result.detail,
                "d": [int(result.verdicts[checker]) for checker in facts.checkers],
                "o": str(result.outcome),
                "why": result.reason,
                "t": paid.tokens,
                "m": paid.micro_dollars or (None if name in unpriced_arms else 0),
                "s": result.seconds.wall,
                "sec": {
                    "queue": result.seconds.queue,
                    "pools": result.seconds.pools,
                    "other": result.seconds.other,
                },
            }
            script = transcripts.get(result.run_id)
            if script is not None:
                chunks[-1][result.run_id] = script
        items.append(row)
    index = {
        "arms": list(facts.manifest.arms),
        "checkers": list(facts.checkers),
        "colours": {
            name: arm_class(facts, name).rpartition("-")[2] for name in facts.manifest.arms
        },
        "items": items,
        # The page's script filters only displayed text with it, so ids still lead to their
        # questions.
        "control": CONTROL.pattern,
    }
    blocks = [_block("index", index)]
    blocks += [_block(f"chunk-{at}", chunk) for at, chunk in enumerate(chunks)]
    return "\n".join(blocks)

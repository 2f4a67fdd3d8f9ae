"""Describes paid calls that count for no arm."""

from __future__ import annotations

from loopline.bench.report import figures as say
from loopline.bench.report.facts import Facts
from loopline.runtime.terminal.pluralize import format_count


def ledger_note(facts: Facts) -> str:
    """Return the sentences below the ledger: with them, its rows add up to all that was paid."""
    reasons = {
        "discarded": "was paid for and not used: workers had died or lost their lease, or the "
        "answer was of no use.",
        "superseded": "was paid for calls of runs that were asked again or have no result.",
    }
    sentences: list[str] = []
    for kind, reason in reasons.items():
        lost = facts.timings[kind]
        if lost["calls"]:
            sentences.append(
                f"A further {say.dollars(lost['micro_dollars'] / 1e6)} "
                f"({format_count(lost['calls'], 'call')}, "
                f"{lost['prompt'] + lost['completion']:,} tokens) {reason}"
            )
    lost = facts.timings["discarded"]
    if lost["unknown"]:
        sentences.append(
            f"Of {format_count(lost['unknown'], 'call')} more it is unknown what was paid: they "
            "were sent, and then the worker or the connection died, or another request was "
            "answered first. They cost "
            f"{say.dollars(lost['unknown_micro_dollars'] / 1e6)} at most; the figures above leave "
            "them out."
        )
    return " ".join(sentences) or "Every paid call was used."

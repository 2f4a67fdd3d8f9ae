"""Words about an unfinished benchmark."""

from __future__ import annotations

from pathlib import Path

from loopline.bench.budgets import options_in_words
from loopline.bench.report.facts import Facts


def remaining_work(facts: Facts, directory: Path | None = None) -> str:
    """Return the words after `Not complete.`: what is missing, and how to continue; empty for a
    complete benchmark."""
    remaining = facts.results["not_done"]
    if not remaining:
        return ""
    words = ", ".join(f"{name}: {len(ids):,}" for name, ids in remaining.items())
    # A bench stops before a run that would exceed its budget: the spent amount doesn't say whether
    # the
    # budget is used up.
    more = options_in_words(facts.manifest)
    return (
        f"Not answered yet: {words}. Figures are over the questions that were asked; "
        f"`bench resume {directory or 'DIR'}` goes on"
        f"{f', with `{more}` where the budget is used up' if more else ''}."
    )

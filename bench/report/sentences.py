"""Sentences shared by all forms of a report: the options of its runs, paid calls that count for no
arm, and the remaining work of an unfinished benchmark."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.records import JsonObject
from loopline.bench.budgets import options_in_words
from loopline.bench.output import Manifest
from loopline.bench.report import figures as say
from loopline.bench.report.facts import Facts
from loopline.runtime.terminal.pluralize import format_count


def options_sentence(manifest: Manifest) -> str:
    """Return the sentence about the runs' options: number of candidates, sampling and token
    limit."""
    if manifest.options is None:
        general = ", general prompts" if manifest.prompt_set == "general" else ""
        return f"Calculator {'on' if manifest.calculator else 'off'}{general}."
    if not manifest.options:
        return "No options."
    return f"Options: {options_text(manifest.options)}."


def options_text(options: JsonObject) -> str:
    """Describe the options of a workflow."""
    return ", ".join(f"{name} {str(value).lower()}" for name, value in options.items())


def ledger_note(facts: Facts) -> str:
    """Return the sentences below the ledger: they account for all paid calls that its rows leave
    out."""
    reasons = {
        "discarded": "was paid but not used: workers had died or lost their lease, or the answer "
        "was unusable.",
        "superseded": "was paid for calls of runs that were repeated or have no result.",
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
            f"The cost of {format_count(lost['unknown'], 'more call')} is unknown: after they were "
            "sent, the worker or the connection died, or another request was answered first. They "
            f"cost at most {say.dollars(lost['unknown_micro_dollars'] / 1e6)}; the figures above "
            "leave them out."
        )
    return " ".join(sentences) or "Every paid call was used."


def remaining_work(facts: Facts, directory: Path | None = None) -> str:
    """Return the words after `Not complete.`: the missing runs and how to continue; empty for a
    complete benchmark."""
    remaining = facts.results["not_done"]
    if not remaining:
        return ""
    words = ", ".join(f"{name}: {len(ids):,}" for name, ids in remaining.items())
    # A bench stops before a run that would exceed its budget, so the amount spent doesn't show
    # whether the budget is used up.
    more = options_in_words(facts.manifest)
    return (
        f"Not answered yet: {words}. Figures are over the questions that were asked; continue "
        f"with `bench resume {directory or 'DIR'}`"
        f"{f', adding `{more}` if the budget is used up' if more else ''}."
    )

"""Formats dollars for a reader: an unknown amount is never shown as a number."""

from __future__ import annotations


def spent_words(micro_dollars: int, *, all_known: bool, none_known: bool, digits: int = 4) -> str:
    """Format a cost: `$0.0012`, `$0.0012 + unknown` where some of it has no price, or `unknown`."""
    dollars = f"${micro_dollars / 1e6:,.{digits}f}"
    if all_known:
        return dollars
    return "unknown" if none_known and not micro_dollars else f"{dollars} + unknown"

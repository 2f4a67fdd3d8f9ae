"""Formats money for readers: an unknown amount is never shown as a number, and a small amount never
as zero."""

from __future__ import annotations

import math

MAX_DECIMALS = 8


def format_dollars(dollars: float, decimals: int = 4) -> str:
    """Format an amount with `decimals` decimals, or more if two significant digits need them:
    `$1.2345`, `$0.0012`, `$0.000023`."""
    if dollars:
        decimals = max(decimals, 1 - math.floor(math.log10(abs(dollars))))
    return f"${dollars:,.{min(MAX_DECIMALS, decimals)}f}"


def spent_words(micro_dollars: int, *, all_known: bool, none_known: bool, decimals: int = 4) -> str:
    """Format a cost: `$0.0012`, `$0.0012 + unknown` if a part of it has no price, or `unknown`."""
    dollars = format_dollars(micro_dollars / 1e6, decimals)
    if all_known:
        return dollars
    return "unknown" if none_known and not micro_dollars else f"{dollars} + unknown"

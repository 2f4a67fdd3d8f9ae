"""Numbers as a report writes them."""

from __future__ import annotations

from loopline.runtime.observe.cost_words import format_dollars


def share(value: float | None, digits: int = 1) -> str:
    """Format 0.864 as 86.4 %."""
    return "–" if value is None else f"{value * 100:.{digits}f} %"


def span(low: float | None, high: float | None) -> str:
    """Format an interval of shares: 83.1 – 89.1."""
    if low is None or high is None:
        return "–"
    return f"{low * 100:.1f} – {high * 100:.1f}"


def points(value: float | None) -> str:
    """Format a difference of shares in percentage points, with its sign."""
    if value is None:
        return "–"
    text = f"{value * 100:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def dollars(value: float | None) -> str:
    """Format dollars, with two significant digits below one dollar."""
    if value is None:
        return "–"
    if value == 0:
        return "$0"
    return format_dollars(value, 2)


def cost(value: float | None, *, has_unpriced: bool) -> str:
    """Format the dollars of calls, some of which may have no price: an unknown amount is never
    shown as a number."""
    if value is None or not has_unpriced:
        return dollars(value)
    return f"{dollars(value)} + unknown" if value else "unknown"


def count(value: float | None, digits: int = 0) -> str:
    """Format a count with thousands separators."""
    return "–" if value is None else f"{value:,.{digits}f}"


def seconds(value: float | None) -> str:
    """Format seconds, in milliseconds below one."""
    if value is None:
        return "–"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def probability(value: float) -> str:
    """Format a p-value for a table."""
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def p_value(value: float) -> str:
    """Format a p-value for a sentence."""
    text = probability(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"

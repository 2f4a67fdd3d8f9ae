"""Links inside the HTML report; its script reads them with `URLSearchParams`."""

from __future__ import annotations

from urllib.parse import quote


def place(name: str, **query: str) -> str:
    """Return an `href` value such as `#items?arm=llm&class=right`, not yet escaped for HTML. A
    name's trailing `_` is dropped (`class_`)."""
    pairs = (f"{key.rstrip('_')}={quote(value, safe='')}" for key, value in query.items())
    return f"#{name}?{'&'.join(pairs)}"


def run_of(item: str) -> str:
    """Link to the runs of a question."""
    return place("run", item=item)

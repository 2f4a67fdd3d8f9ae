"""Links inside the HTML report, which its script reads with `URLSearchParams`."""

from __future__ import annotations

from urllib.parse import quote


def place(name: str, **query: str) -> str:
    """Return `#items?arm=llm&class=right`, as the value of an `href`, not yet escaped for HTML. A
    trailing `_` of a name is dropped (`class_`)."""
    pairs = (f"{key.rstrip('_')}={quote(value, safe='')}" for key, value in query.items())
    return f"#{name}?{'&'.join(pairs)}"


def run_of(item: str) -> str:
    """Link to the runs of a question."""
    return place("run", item=item)

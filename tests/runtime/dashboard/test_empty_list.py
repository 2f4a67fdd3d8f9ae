"""An empty list of runs explains how to start one, unless only the filter hides all runs."""

from __future__ import annotations

import pytest

from loopline.runtime.terminal.pages.templates import render


@pytest.mark.parametrize(
    ("is_empty", "more", "words"),
    [
        (True, None, "There is no run yet."),
        (False, None, "No run matches."),
        (False, "/dashboard/runs?after=1", "No run matches among the newest ones"),
    ],
)
def test_an_empty_list_says_why_it_is_empty(is_empty: bool, more: str | None, words: str) -> None:
    page = render(
        "loopline.runtime.dashboard", "templates/runs.html.j2",
        path="/dashboard", rows=[], recorded=[], fields={}, states=["active"], live=None,
        more=more, is_empty=is_empty, api="http://127.0.0.1:8000/v1",
    )  # fmt: skip
    assert words in page
    assert ("OPENAI_BASE_URL=http://127.0.0.1:8000/v1" in page) == is_empty

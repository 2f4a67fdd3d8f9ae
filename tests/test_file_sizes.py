"""A file has one reason to exist, and at most 500 lines."""

from __future__ import annotations

from tests.test_wording import place, sources

MAX_LINES = 500


def test_no_source_or_test_has_more_than_500_lines() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in sources()}
    assert [place(path, count) for path, count in lines.items() if count > MAX_LINES] == []

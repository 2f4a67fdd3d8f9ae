"""Links of the pages outside the site, which MkDocs does not check."""

from __future__ import annotations

import re

import pytest

from tests.docs.fences import ROOT

PAGES = sorted(path.name for path in ROOT.glob("*.md"))
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(text: str) -> set[str]:
    """Return the anchor that MkDocs and GitHub derive from a plain heading."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_has_a_target(page: str) -> None:
    wrong: list[str] = []
    for target, anchor in _LINK.findall((ROOT / page).read_text()):
        path = ROOT / target if target else ROOT / page
        if not path.exists() or (
            anchor and path.suffix == ".md" and anchor not in anchors(path.read_text())
        ):
            wrong.append(f"{target}#{anchor}")
    assert PAGES
    assert not wrong


def test_the_readme_can_be_read_in_three_minutes() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 700

"""A page as a browser's parser reads it."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser


class ParsedPage(HTMLParser):
    """The elements of a page, and its text by kind."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        """The text outside of scripts and styles."""
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside == "style":
            self.styles.append(data)
        else:
            self.text += data

    def of(self, tag: str, look: str = "") -> list[dict[str, str]]:
        """Attributes of the elements with that name and class."""
        return [
            attributes
            for name, attributes in self.tags
            if name == tag and (not look or look in attributes.get("class", "").split())
        ]

    def require_harmless(self) -> None:
        """Check that the page fetches nothing and runs only what its policy lists by hash."""
        (policy,) = [element["content"] for element in self.of("meta") if "http-equiv" in element]
        assert policy.startswith("default-src 'none'; ")
        for kind, texts in (("script-src", self.scripts), ("style-src", self.styles)):
            assert len(texts) <= 1
            for element in texts:
                digest = base64.b64encode(hashlib.sha256(element.encode()).digest()).decode()
                assert f"{kind} 'sha256-{digest}'" in policy
        for name, attributes in self.tags:
            assert name not in {"img", "iframe", "link", "object", "embed", "base", "form"}
            for key, value in attributes.items():
                assert not key.startswith("on")
                assert key not in {"src", "style", "srcset", "action"}
                assert key != "href" or value.startswith("#")

"""The shell of a page: head, style and a content security policy.

The policy allows only the page's own style and script, by their hashes. A model's text can enter
the page only as text, and would not run if it entered otherwise. Style attributes are refused, too;
`svg` draws everything that has a size.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from loopline.runtime.terminal.pages.templates import render

_PACKAGE = "loopline.runtime.terminal.pages"


def page(title: str, body: str, *, style: str = "", script: str = "", after: str = "") -> str:
    """Return a whole page. `title` is text; `body` and `after` (after the main part) are HTML;
    `style` is added to the style of all pages."""
    whole = files(_PACKAGE).joinpath("page.css").read_text(encoding="utf-8") + style
    allowed = [f"style-src '{_hash(whole)}'"]
    if script:
        allowed.append(f"script-src '{_hash(script)}'")
    policy = "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])
    whole_page = render(
        _PACKAGE, "page.html.j2",
        title=title, body=body, style=whole, script=script, after=after, policy=policy,
    )  # fmt: skip
    return str(whole_page)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Render a table of texts with the macro `table`, for a page without a template."""
    return _macro("table", head, rows)


def figure(drawing: str, caption: str, heading: str = "") -> str:
    """Render a drawing with its caption with the macro `figure`, for a page without a template."""
    return _macro("figure", drawing, caption, heading)


def _macro(name: str, *values: object) -> str:
    # A plain string, because joining a `Markup` with a string would escape the string.
    return str(render(_PACKAGE, "macro.html.j2", name=name, values=values))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

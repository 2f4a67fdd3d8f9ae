"""The shell of a page: head, style and a content security policy.

The policy allows the page's own style and script, by their hashes, and nothing else: whatever a
model wrote could get into the page only as text, and would not run if it got in otherwise. Style
attributes are refused too; what has a size is drawn by `svg`.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files


def page(title: str, body: str, *, style: str = "", script: str = "", after: str = "") -> str:
    """A whole page. `title` is text; `body` and `after` (behind the main part) are HTML; `style`
    goes behind the style of all pages."""
    whole = (
        files("loopline.runtime.terminal.pages").joinpath("page.css").read_text(encoding="utf-8")
        + style
    )
    allowed = [f"style-src '{_hash(whole)}'"]
    if script:
        allowed.append(f"script-src '{_hash(script)}'")
    policy = "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])
    run = f"\n<script>{script}</script>" if script else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{whole}</style>
</head>
<body>
<main>
{body}
</main>
{after}{run}
</body>
</html>
"""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of texts that scrolls by itself where it is wider than the page; the first column
    stands left, the others right."""
    first = "".join(f"<th>{escape(word)}</th>" for word in head)
    body = "".join(
        f"<tr>{''.join(f'<td class=num>{escape(word)}</td>' for word in row)}</tr>" for row in rows
    )
    top = f"<thead><tr>{first}</tr></thead>"
    return f'<div class="scroll"><table class="dense">{top}<tbody>{body}</tbody></table></div>'


def figure(drawing: str, caption: str, heading: str = "") -> str:
    """A drawing with what it shows."""
    above = f"<h3>{escape(heading)}</h3>" if heading else ""
    return f"<figure>{above}{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

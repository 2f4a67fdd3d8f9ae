"""HTML from Jinja2 templates, which are stored next to the code that fills them.

    body = render("loopline.bench.report", "report.html.j2", facts=facts)
    page(title, body)

A template is package data, `NAME.html.j2`. It finds the files of its own package and those of this
one: `{% from "macros.html.j2" import table, figure, link %}`. Every text value is escaped, and its
control characters are shown as code points, so values need no special care. An undefined name is an
error. HTML from elsewhere (an `svg` drawing, another rendered part) is passed as `Markup`, or with
`| safe` in the template.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, cast

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from loopline.runtime.observe.cost_words import format_dollars
from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.safe_text import sanitize

_SHARED = "loopline.runtime.terminal.pages"


def render(package: str, template: str, **values: object) -> Markup:
    """Return a package's template, filled in. Raises `jinja2.TemplateError`."""
    return Markup(_environment(package).get_template(template).render(values))


@cache
def _environment(package: str) -> Environment:
    folders = dict.fromkeys((package, _SHARED))
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(folder, "") for folder in folders]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["grouped"] = _grouped
    environment.filters["dollars"] = format_dollars
    environment.filters["spaced"] = _spaced
    environment.filters["code"] = _code
    # Jinja2's types only cover filters with one argument, and its own filters.
    cast(dict[str, Any], environment.filters)["counted"] = format_count
    return environment


def _harmless(value: object) -> object:
    return sanitize(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _grouped(number: int) -> str:
    """Format 12345 as 12,345."""
    return f"{number:,}"


def _spaced(name: str) -> str:
    """Return an identifier as words."""
    return name.replace("_", " ")


def _code(text: str) -> Markup:
    """Return a text with words between backticks as code."""
    # A plain string: a `Markup` would escape the inserted text.
    return Markup(re.sub("`(.+?)`", r"<code>\1</code>", str(escape(sanitize(text)))))

"""Whether a model's chat template reads the switches that are set for it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache

from loopline.agents.template_options import TemplateValue


def combined_options(
    of_pool: Mapping[str, TemplateValue],
    of_request: Mapping[str, TemplateValue],
    templates: Iterable[str],
) -> dict[str, TemplateValue]:
    """Merge a request's options over those of its pool, which were checked when the model was
    loaded. Raises ValueError for an option of the request that no template reads."""
    wrong = unread_option(of_request, templates) if of_request else None
    if wrong is not None:
        raise ValueError(wrong)
    return {**of_pool, **of_request}


def unread_option(options: Mapping[str, TemplateValue], templates: Iterable[str]) -> str | None:
    """The error for the first option that no template reads; None if all are read."""
    import jinja2

    try:
        names = frozenset[str]().union(*map(_names_in, templates))
    except jinja2.TemplateSyntaxError as error:
        return f"its chat template has a syntax error: {error}"
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; leave it out"
            return f"its chat template does not use template_options.{name}{hint}"
    return None


@cache
def _names_in(template: str) -> frozenset[str]:
    """Raises `jinja2.TemplateSyntaxError`."""
    import jinja2

    # Not parsed: templates have tags that only the rendering packages know.
    lexed = jinja2.Environment().lex(template)
    return frozenset(value for _, kind, value in lexed if kind == "name")

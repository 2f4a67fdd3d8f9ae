"""Limits on how much of a run its page shows. The page states what is left out, both in place and
at its top; the journal contains everything."""

from __future__ import annotations

import json

from markupsafe import Markup, escape
from pydantic import JsonValue

from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.safe_text import sanitize

MAX_STEPS = 400
MAX_MESSAGES = 200
"""Maximum number of messages of a conversation, counted from its end."""
MAX_CHARS = 20_000
"""Maximum characters of one text."""
MAX_CHARS_FULL = 300
"""Maximum characters of one text once the page is full."""
PAGE_CHARS = 2_500_000
"""Maximum characters of all texts: a page of a few megabytes opens immediately."""
CALL_TOKENS = 3_000
"""Maximum coloured tokens of one completion."""
PAGE_TOKENS = 50_000
"""Maximum coloured tokens of all completions: each is an element of the page."""
PAGE_CANDIDATES = 1_000
"""Maximum candidates shown with rewards, calls and facts, which are dozens of elements even without
text."""


class SizeBudget:
    """Remaining space of a page. Request space in order of importance."""

    def __init__(self) -> None:
        self.cut_texts = 0
        self.plain_calls = 0
        """Number of completions with some uncoloured tokens."""
        self.bare_candidates = 0
        """Number of candidates of which the page only shows the heads."""
        self._chars = PAGE_CHARS
        self._tokens = PAGE_TOKENS
        self._candidates = PAGE_CANDIDATES

    def text(self, text: str) -> Markup:
        """Return the start of a text as HTML, with the number of missing characters instead of the
        rest."""
        limit = MAX_CHARS if self._chars > 0 else MAX_CHARS_FULL
        self._chars -= min(len(text), limit)
        if len(text) <= limit:
            return escape(sanitize(text))
        self.cut_texts += 1
        missing = f"… {format_count(len(text) - limit, 'character')} more"
        return Markup('{}<span class="cut">{}</span>').format(sanitize(text[:limit]), missing)

    def json(self, value: JsonValue) -> Markup:
        """Return a value as a line of JSON in HTML."""
        return self.text(json.dumps(value, ensure_ascii=False))

    def candidate(self) -> bool:
        """Whether the body of one more candidate may be shown."""
        self._candidates -= 1
        is_within_budget = self._candidates >= 0
        self.bare_candidates += not is_within_budget
        return is_within_budget

    def take_coloured_tokens(self, tokens: int) -> int:
        """Return how many of a completion's tokens get a colour."""
        allowance = max(0, min(tokens, CALL_TOKENS, self._tokens))
        self._tokens -= allowance
        self.plain_calls += allowance < tokens
        return allowance

    @property
    def omissions(self) -> str:
        """Describe in a sentence what was left out; empty if nothing was."""
        parts: list[str] = []
        if self.cut_texts:
            parts.append(f"{format_count(self.cut_texts, 'long text')} truncated")
        if self.plain_calls:
            parts.append(
                f"{format_count(self.plain_calls, 'completion')} not coloured, or only at the "
                "beginning"
            )
        if self.bare_candidates:
            parts.append(f"{format_count(self.bare_candidates, 'candidate')} shown without details")
        return " and ".join(parts)

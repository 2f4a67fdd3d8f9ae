"""Secrets that are known by their values, as texts may spell them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

HIDDEN = "***"
MIN_SECRET_CHARS = 6
"""Minimum length of a hidden value: a shorter one (an empty variable, `test`) would hide half of
every text."""


def spellings(secrets: Iterable[str], min_chars: int = MIN_SECRET_CHARS) -> list[str]:
    """The secrets as they are and in JSON and URL encoding, without shorter ones; the longest
    first, so that one is not hidden only as a part of another."""
    forms = {
        form
        for secret in secrets
        if len(secret) >= min_chars
        for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote_plus(secret))
    }
    return sorted(forms, key=len, reverse=True)

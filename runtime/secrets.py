"""What a secret looks like, and how it is hidden before anything is printed or logged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

HIDDEN = "***"

SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:password|passwd|secret|token|api[_-]?key|apikey|authorization|credential)s?$",
    re.IGNORECASE,
)
"""Names whose value is never shown. `api_key_env` holds a variable's *name* and stays readable, as
do all values of a table such as `headers_env`, and counts such as `max_tokens`, whose plural is
excepted below."""

_NOT_SECRET = re.compile(r"(?:^|[_-])tokens$", re.IGNORECASE)

_IN_TEXT = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s/]*@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"([?&](?:ssl_)?password=)[^&\s\"']+"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(?:sk|hf|ghp|gho|xox[bap])[-_][A-Za-z0-9_-]{12,}"), HIDDEN),
    (re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}"), rf"\1{HIDDEN}"),
)
MIN_SECRET_CHARS = 6
"""A shorter value (an empty variable, `test`) would hide half of every log line."""


def is_secret_name(name: str) -> bool:
    return bool(SECRET_NAME.search(name)) and not _NOT_SECRET.search(name)


class Redactor:
    """Hides the given values, and whatever looks like a key, in any text."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        longest_first = sorted(
            {value for value in values if len(value) >= MIN_SECRET_CHARS}, key=len, reverse=True
        )
        self._values = (
            re.compile("|".join(re.escape(value) for value in longest_first))
            if longest_first
            else None
        )

    def text(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(HIDDEN, text)
        for pattern, hidden in _IN_TEXT:
            text = pattern.sub(hidden, text)
        return text

    def value(self, value: Any, name: str = "") -> Any:
        """A JSON-like value with every secret hidden, by its key's name or by its look."""
        if name and is_secret_name(name) and value not in (None, ""):
            return HIDDEN
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.text(value.decode("utf-8", "replace"))
        if isinstance(value, Mapping):
            holds_names = name.endswith("_env")
            return {
                key: self.value(inner, "" if holds_names else str(key))
                for key, inner in cast(Mapping[Any, Any], value).items()
            }
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in cast(Iterable[Any], value)]
        return value


def secret_values(
    redis_url: str | None, key_variables: Iterable[str], environ: Mapping[str, str] | None = None
) -> list[str]:
    """The values that must never be written: the passwords in the URL, as they are written and as
    they are meant, and the configured API keys."""
    environ = os.environ if environ is None else environ
    values = [environ[name] for name in key_variables if environ.get(name)]
    parts = urlsplit(redis_url or "")
    passwords = [parts.password, *re.findall(r"(?:^|&)(?:ssl_)?password=([^&]*)", parts.query)]
    for password in filter(None, passwords):
        values += [password, unquote(password)]
    return list(dict.fromkeys(values))

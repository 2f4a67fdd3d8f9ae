"""Recognizes secrets, and hides them before anything is printed or logged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote, urlsplit

HIDDEN = "***"

_WORD_BEGINS = r"(?:^|[_-]|(?-i:(?<=[a-z])(?=[A-Z])|\bPG(?=PASS)))"
SECRET_NAME = re.compile(
    rf"{_WORD_BEGINS}(?:password|passwd|passphrase|secret|token|api[_-]?key|apikey|private[_-]?key"
    r"|authorization|credential)s?$",
    re.IGNORECASE,
)
"""Names whose values are never shown. `api_key_env` holds a variable's *name* and stays readable,
as do all values of a table such as `headers_env`, and counts such as `max_tokens`: the next pattern
excludes their plural."""

_NOT_SECRET = re.compile(rf"{_WORD_BEGINS}tokens$", re.IGNORECASE)

_SECRET_WORD = (
    r"(?:password|passwd|passphrase|secret|token|api[_-]?key|apikey|access[_-]?key|account[_-]?key"
    r"|private[_-]?key|authorization|credential)s?"
)
# Words with separators, or written together: `clientSecret`, `PGPASSWORD`.
_NAME_IN_TEXT = (
    r"(?<![A-Za-z0-9])(?!(?:[A-Za-z0-9]{1,32}[_-]){0,4}[A-Za-z0-9]{0,32}tokens\b)"
    rf"(?:[A-Za-z0-9]{{1,32}}[_-]){{0,4}}[A-Za-z0-9]{{0,32}}?{_SECRET_WORD}"
)
_SCHEME = r"(?:(?:basic|bearer|digest|token)\s{1,3})?"
_KEY_PREFIX = (
    r"(?:(?:sk|pk|rk|hf|gsk|xai|r8|npm|pypi|glpat|gh[pousr]|github_pat|xox[abeprs])[-_]"
    r"|(?:csk|nvapi|pplx|tvly|xapp)-|(?:dop_v1|fw|jina|lin_api|lsv2|ntn|tgp_v1|whsec)_)"
)
_HEADER = (
    r"(?:(?:x-[a-z-]{0,32}|(?:ocp-apim-)?subscription-|private-|api-|access-|auth-|session-)"
    r"(?:key|token|secret|signature)|(?:proxy-)?authorization)"
)

_IN_TEXT = tuple(
    (re.compile(pattern), hidden)
    for pattern, hidden in (
        # The user and password of a URL.
        (r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s:/@]{0,256}):[^\s/]{0,1024}@", rf"\1:{HIDDEN}@"),
        # … or only a token, and tokens in the path of a URL.
        (r"(\b[a-z][a-z0-9+.-]{0,30}://)[^\s:/@?#]{20,256}@", rf"\1{HIDDEN}@"),
        (r"(\bhooks\.slack\.com/services/)[A-Za-z0-9/_-]{8,}", rf"\1{HIDDEN}"),
        # `--token=…`, `?api_key=…`, `OPENAI_API_KEY=…`
        (rf"(?i)({_NAME_IN_TEXT}=)[\"']?{_SCHEME}[^\s&\"',;)}}\]]+", rf"\1{HIDDEN}"),
        (r"(?i)([?&](?:key|(?:[a-z]{1,9}-){0,3}sig(?:nature)?|auth)=)[^\s&\"'#]+", rf"\1{HIDDEN}"),
        # `token = …` and `password: …`, if the value looks like a secret and not like a word.
        (
            rf"(?i)({_NAME_IN_TEXT}(?:\s{{1,3}}=\s{{0,3}}|:\s{{1,3}}))"
            r"(?=[^\s\"',;]{0,99}[0-9])[^\s\"',;]{8,}",
            rf"\1{HIDDEN}",
        ),
        # `--token …`
        (rf"(?i)(--{_NAME_IN_TEXT}\s{{1,3}})(?!-)[^\s\"']+", rf"\1{HIDDEN}"),
        # `"api_key": "…"`
        (
            rf"(?i)({_NAME_IN_TEXT}\\?[\"']\s{{0,3}}:\s{{0,3}}\\?[\"'])[^\"'\\]+",
            rf"\1{HIDDEN}",
        ),
        # `Authorization: Bearer …`, `x-api-key: …`
        (
            rf"(?i)\b({_HEADER})(\s{{0,3}}:\s{{0,3}}{_SCHEME})[^\s\"',;]+",
            rf"\1\2{HIDDEN}",
        ),
        (r"(?i)\b((?:set-)?cookie:\s?)[\w.-]{1,64}=[^\r\n\"']*", rf"\1{HIDDEN}"),
        (r"(?i)(\bapi[ _-]key\s{1,3}[\"'])[^\s\"']{8,}", rf"\1{HIDDEN}"),
        (r"(?i)(\btoken\s)[0-9a-f]{40}\b", rf"\1{HIDDEN}"),
        (r"(?i)\b(bearer\s{1,3})[A-Za-z0-9._~+/=-]{8,}", rf"\1{HIDDEN}"),
        # Keys by their format: of OpenAI and others, of hubs and forges, of clouds, and JWTs.
        (rf"\b{_KEY_PREFIX}[A-Za-z0-9_-]{{12,}}", HIDDEN),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}", HIDDEN),
        (
            r"\bya29\.[\w-]{20,}|\bSG\.[\w-]{16,64}\.[\w-]{16,}|\b(?:dapi|SK)[0-9a-f]{32}\b"
            r"|\b[0-9]{8,10}:AA[\w-]{32,}",
            HIDDEN,
        ),
        (
            r"(-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----)[^-]{1,10000}+"
            r"(?:-----END [A-Z ]{1,40}-----)?",
            rf"\1{HIDDEN}",
        ),
        (r"\beyJ[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]{8,}", HIDDEN),
    )
)
"""Patterns of secrets in a text, with their replacements. A repetition that something must follow
is bounded: a foreign text may be a megabyte that starts like a secret."""
_PERHAPS = re.compile(rf"[=:\s/]|\b{_KEY_PREFIX}|AKIA|ASIA|AIza|eyJ|ya29|SG\.|dapi|SK")
"""Finds a text that one of these patterns could match. Most texts of a log (ids, names, levels)
don't match, and need not be searched ten times."""
MIN_SECRET_CHARS = 6
"""Minimum length of a hidden value: a shorter one (an empty variable, `test`) would hide half of
every log line."""


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    return bool(SECRET_NAME.search(name)) and not _NOT_SECRET.search(name)


class Redactor:
    """Hides the given values, and everything that looks like a key, in any text."""

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
        if _PERHAPS.search(text) is None:
            return text
        for pattern, hidden in _IN_TEXT:
            text = pattern.sub(hidden, text)
        return text

    def value(self, value: Any, name: str = "") -> Any:
        """Return a JSON-like value with every secret hidden, recognized by its key's name or its
        format."""
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
    """Return the values that must never be written: the passwords in the URL, encoded and decoded,
    and the configured API keys."""
    environ = os.environ if environ is None else environ
    values = [environ[name] for name in key_variables if environ.get(name)]
    parts = urlsplit(redis_url or "")
    passwords = [parts.password, *re.findall(r"(?:^|&)(?:ssl_)?password=([^&]*)", parts.query)]
    for password in filter(None, passwords):
        values += [password, unquote(password)]
    return list(dict.fromkeys(values))

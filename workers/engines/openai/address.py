"""Address of an endpoint's requests, its name for messages, and the API key, as the engine and
`runtime doctor` read it from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urljoin, urlsplit, urlunsplit

from loopline.workers.engines.protocol import EngineError

OPENAI_URL = "https://api.openai.com/v1"
_ROUTE = "chat/completions"


@dataclass(frozen=True)
class Address:
    """The parts of a `base_url`: `http://host:8000/v1`, optionally with a query that is added to
    each request (`?api-version=…`). A URL of the route itself is reduced to its base."""

    base: str
    """Base URL without the query and without a trailing slash."""
    query: str
    name: str
    """Only host and port: a URL may contain a password or a key."""
    secrets: tuple[str, ...]
    """Password and query values: an endpoint may repeat them in its errors."""

    @classmethod
    def of(cls, base_url: str | None) -> Address:
        """Parse a base_url; None is OpenAI itself."""
        parts = urlsplit((base_url or OPENAI_URL).strip())
        path = parts.path.rstrip("/")
        for route in (_ROUTE, "embeddings"):
            path = path.removesuffix(f"/{route}").rstrip("/")
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
        hidden = [unquote(parts.password or ""), *(value for _, value in parse_qsl(parts.query))]
        return cls(
            base=urlunsplit((parts.scheme, parts.netloc, path, "", "")),
            query=parts.query,
            name="OpenAI" if base_url is None else host + (f":{parts.port}" if parts.port else ""),
            # Masking a short value (a version, a number) would hide ordinary words of the error.
            secrets=tuple(value for value in hidden if len(value) >= 8),
        )

    @property
    def shown(self) -> str:
        """The base URL without user and password, for display; `OpenAI` for OpenAI's own."""
        if self.name == "OpenAI":
            return self.name
        parts = urlsplit(self.base)
        return urlunsplit((parts.scheme, self.name, parts.path, "", ""))

    def url(self, route: str = _ROUTE) -> str:
        """URL of a route below the base."""
        return f"{self.base}/{route}" + (f"?{self.query}" if self.query else "")


def same_origin(url: str, other_url: str) -> bool:
    """Whether scheme, host and port are equal, so that a request for one may be sent to the
    other."""
    return _origin(url) == _origin(other_url)


def redirect_target(url: str, location: str) -> str | None:
    """The absolute URL that a redirect leads to; None if it is missing or invalid."""
    if not location:
        return None
    try:
        target = urljoin(url, location)
        return target if _origin(target)[1] else None
    except ValueError:
        return None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def read_key(variable: str) -> str:
    """Return an API key from the environment, without the whitespace that was copied with it; empty
    if there is none."""
    return os.environ.get(variable, "").strip()


def require_key(variable: str, key_of: str, subject: str = "") -> str:
    """Return an API key from the environment. `key_of` says which key it must be. Raises
    EngineError `auth` if there is none that an HTTP header can contain."""
    key = read_key(variable)
    wrong = invalid_key_reason(key) if key else "is not set"
    if wrong:
        start = f"{subject}: " if subject else ""
        raise EngineError(
            f"{start}the environment variable {variable} {wrong}; set it to {key_of}", kind="auth"
        )
    return key


def invalid_key_reason(key: str) -> str | None:
    """Why an HTTP header cannot contain the key; None if it can."""
    if key.isascii() and key.isprintable():
        return None
    return "contains a character that no API key has"

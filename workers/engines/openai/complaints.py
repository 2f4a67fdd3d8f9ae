"""Reads an endpoint's error, in any format.

Known formats: `{"error": {"message", "type", "param", "code"}}`, `{"error": "…"}`, a list of these,
`{"detail": "…"}` and `{"detail": [{"loc", "msg"}]}` of FastAPI, `{"object": "error", "message"}`,
`{"msg", "code"}`, plain text, a web page. Therefore no single place is searched: every text of the
body is kept, its message first.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import islice
from typing import cast

from loopline.agents.known_secrets import hide

MAX_BODY_BYTES = 64 * 1024
"""Most bytes that are read of an error's body: a longer body is a web page or an attack."""
MAX_QUOTED_CHARS = 1200
"""Most characters that are quoted from an endpoint's error: enough for any server's errors, not for
a web page."""
_MAX_FACTS = 64
_MAX_DEPTH = 8
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s?(ms|[smhd])", re.IGNORECASE)
_WAIT = re.compile(
    r"\b(?:try again|retry|wait|resets?)(?: (?:in|after|for))? "
    r"((?:\d{1,9}(?:\.\d{1,9})?\s?(?:ms|s(?:ecs?|econds?)?|m(?:ins?|inutes?)?|h(?:ours?)?|d(?:ays?)?)"
    r"(?![a-z])\s?){1,4})",
    re.IGNORECASE,
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

_WAITS = frozenset({"retry_after", "retryafter", "retry_after_seconds"})

_MESSAGES = frozenset(
    {"message", "msg", "detail", "details", "error", "errors", "error_description", "error_msg",
     "errormessage", "error_message", "status_msg", "title", "reason", "description", "text",
     "raw"}
)  # fmt: skip
"""Names of sentences. `raw` is the error of the server behind OpenRouter."""
_FAILURES = frozenset(
    {"message", "msg", "detail", "error_msg", "errormessage", "error_message", "status_msg"}
)
"""Names of the words of an error that is not labelled as one: Baidu's, MiniMax's, Tencent's."""
_CODES = frozenset({"code", "type", "status", "error_code", "error_type", "reason"})


@dataclass(frozen=True)
class Complaint:
    """A parsed error body."""

    message: str
    """Only the sentences."""
    rest: str
    """All other values, as `name: value`."""
    codes: frozenset[str]
    """Codes and types, in lower case."""
    fields: frozenset[str]
    """Fields of the request that the error refers to (`param`, `loc`)."""
    status: int | None
    """An HTTP status inside the body."""
    retry_after: float | None = None
    """Seconds to wait, in Google's `retryDelay`, in a field for them or in the words of the
    message."""

    def quoted(self, secrets: Sequence[str]) -> str:
        """Text for display: on one line, bounded, secrets masked because some endpoints repeat a
        key."""
        words = f"{self.message} ({self.rest})" if self.message and self.rest else self.rest
        return quote(words if self.rest else self.message, secrets) or "an empty body"


def quote(text: str, secrets: Sequence[str]) -> str:
    """Return the text on one line, without control characters, bounded, with the secrets masked."""
    text = hide(text, secrets, min_chars=1)
    text = "".join(c if c.isprintable() else " " for c in text)
    text = " ".join(text.split())
    return text if len(text) <= MAX_QUOTED_CHARS else text[:MAX_QUOTED_CHARS] + "…"


def complaint_in(body: bytes) -> Complaint:
    """Parse the raw body of an error."""
    text = body[:MAX_BODY_BYTES].decode("utf-8-sig", "replace")
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return complaint_of(_text_of_page(text) if "<" in text else text)
    return complaint_of(value)


def complaint_of(value: object) -> Complaint:
    """Return the complaint in a parsed error, or in its plain text."""
    messages: list[str] = []
    rest: list[str] = []
    codes: set[str] = set()
    fields: set[str] = set()
    status: int | None = None
    retry_after: float | None = None
    for name, fact in islice(_walk(value, "", 0), _MAX_FACTS):
        text = _text(fact)
        if name in _CODES:
            codes.add(text.lower())
            if text.isdecimal() and 400 <= int(text[:6]) <= 599:
                status = int(text)
        if name == "retrydelay" and (delay := _DELAY.fullmatch(text)):
            retry_after = float(delay[1])
        if name in _WAITS and isinstance(fact, int | float) and math.isfinite(fact):
            retry_after = max(0.0, float(fact))
        if name in ("param", "loc"):
            fields.update(part for part in text.replace("[", ".").split(".") if part)
        if name == "" or (name in _MESSAGES and isinstance(fact, str)):
            if text not in messages:
                messages.append(text)
        else:
            rest.append(f"{name}: {text}")
    message = "; ".join(messages)
    return Complaint(
        message=message,
        rest=", ".join(rest),
        codes=frozenset(codes),
        fields=frozenset(fields),
        status=status,
        retry_after=_stated_wait(message) if retry_after is None else retry_after,
    )


def error_in(payload: object, *, marked: bool = False, alone: bool = True) -> object | None:
    """The error in a payload that was sent with status 200; None if there is none. `marked`: the
    server itself labels it as an error. `alone`: the payload is the whole answer, so that a bare
    `message` or `detail` is the error."""
    if isinstance(payload, list):
        holding = [item for item in cast(list[object], payload) if error_in(item) is not None]
        return holding or (payload if marked else None)
    if not isinstance(payload, dict):
        return payload if marked else None
    body = cast(dict[str, object], payload)
    if body.get("error"):
        # A chunk may include the error: the rest of the chunk is then useless.
        return body["error"] if "choices" in body else body
    choices = body.get("choices")
    if isinstance(choices, list):  # OpenRouter's, from the provider behind it
        for choice in cast(list[object], choices):
            if isinstance(choice, dict) and cast(dict[str, object], choice).get("error"):
                return cast(dict[str, object], choice)["error"]
    if marked or "error" in (body.get("object"), body.get("type"), body.get("status")):
        return body
    if alone and body.get("choices") is None and _is_failure(body):
        return body
    return None


def _is_failure(body: dict[str, object]) -> bool:
    if body.get("success") is False:
        return True
    facts = islice(_walk(body, "", 0), _MAX_FACTS)
    return any(name in _FAILURES and isinstance(fact, str) for name, fact in facts)


def _walk(value: object, name: str, depth: int) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of every scalar, in the order of the body."""
    if depth > _MAX_DEPTH or value is None or value == "":
        return
    if isinstance(value, dict):
        for key, inner in cast(dict[str, object], value).items():
            yield from _walk(inner, key.lower(), depth + 1)
    elif isinstance(value, list):
        items = cast(list[object], value)
        if name == "loc":
            yield name, ".".join(_text(item) for item in items)
            return
        for item in items:
            yield from _walk(item, name, depth + 1)
    elif name in _MESSAGES and (inner := _json_in(value)) is not None:
        yield from _walk(inner, name, depth + 1)
    else:
        yield name, value


def _json_in(value: object) -> object | None:
    """The error of another server that a gateway passes on as a text of JSON."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(value, strict=False)
    except (ValueError, RecursionError):
        return None


def _stated_wait(message: str) -> float | None:
    """Seconds in "try again in 1m26.4s" or "retry after 35 seconds"."""
    stated = _WAIT.search(message[:MAX_QUOTED_CHARS])
    if stated is None:
        return None
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in _TIME.findall(stated[1]))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class _Page(HTMLParser):
    """The words of a web page."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if self._hidden <= 0:
            self.words.append(data)


def _text_of_page(text: str) -> str:
    page = _Page()
    page.feed(text)
    page.close()
    return " ".join(" ".join(page.words).split()) or text

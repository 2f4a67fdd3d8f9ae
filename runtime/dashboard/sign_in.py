"""Sign-in to the dashboard: the owner of an API key signs in with the key or with a ticket.

A browser has a random cookie; the bus stores the cookie's digest, the key's digest and the token of
the session's forms. Revoking a key ends its sessions. A ticket is a link that works once, within a
minute: `runtime dashboard` prints one for a user who can read the deployment's files anyway.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request

from loopline.bus import Bus
from loopline.runtime.gateway.api_keys import ApiKey, by_digest, digest

COOKIE = "loopline_session"
SESSION_SECONDS = 12 * 3600
TICKET_SECONDS = 60
MAX_FORM_BYTES = 256 * 1024


@dataclass(frozen=True)
class Viewer:
    """A person who is signed in."""

    key: ApiKey
    form_token: str
    """Token in the forms of this session, so that no other page can send them."""

    @property
    def may_change(self) -> bool:
        return self.key.dashboard == "write"


class NotSignedIn(Exception):
    """The request has no session, or its session has ended."""


class Refused(Exception):
    """The viewer may not do this; the message states why."""


async def make_ticket(bus: Bus, key_digest: str) -> str:
    """Return a ticket for the owner of a key. It works once, within a minute."""
    ticket = secrets.token_urlsafe(32)
    await bus.redis.set(bus.keys.dashboard("ticket", _sha(ticket)), key_digest, ex=TICKET_SECONDS)
    return ticket


async def use_ticket(bus: Bus, ticket: str) -> str | None:
    """Return the digest of the ticket's key; this works once per ticket."""
    key = bus.keys.dashboard("ticket", _sha(ticket))
    stored: bytes | None = await bus.redis.get(key)
    # If two requests use it at the same time, only one deletes it.
    return stored.decode() if stored and await bus.redis.delete(key) else None


async def sign_in(bus: Bus, key_digest: str) -> str | None:
    """Return the cookie of a new session; None if the key has no access to the dashboard."""
    key = await by_digest(bus, key_digest)
    if key is None or key.revoked or key.dashboard == "none":
        return None
    cookie = secrets.token_urlsafe(32)
    body = json.dumps({"key": key_digest, "form_token": secrets.token_urlsafe(32)})
    await bus.redis.set(bus.keys.dashboard("session", _sha(cookie)), body, ex=SESSION_SECONDS)
    return cookie


async def sign_out(bus: Bus, request: Request) -> None:
    await bus.redis.delete(bus.keys.dashboard("session", _sha(request.cookies.get(COOKIE, ""))))


async def viewer_of(bus: Bus, request: Request) -> Viewer:
    """Return the viewer of a request. Raises `NotSignedIn`."""
    cookie = request.cookies.get(COOKIE, "")
    if not cookie or len(cookie) > 100:
        raise NotSignedIn
    body: bytes | None = await bus.redis.get(bus.keys.dashboard("session", _sha(cookie)))
    if body is None:
        raise NotSignedIn
    session = json.loads(body)
    key = await by_digest(bus, session["key"])
    if key is None or key.revoked or key.dashboard == "none":
        raise NotSignedIn
    return Viewer(key, session["form_token"])


def require_same_origin(request: Request) -> None:
    """Raises `Refused` for a request that another site's page made the browser send."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    if site not in ("same-origin", "none") or (origin and urlsplit(origin).netloc != host):
        raise Refused("this form was sent by a page of another site")


def require_form_token(viewer: Viewer, form: dict[str, str]) -> None:
    """Raises `Refused` for a form that does not belong to this session."""
    if not hmac.compare_digest(form.get("form_token", "").encode(), viewer.form_token.encode()):
        raise Refused("this form is too old: go back, load the page again, and send it again")


def require_change(viewer: Viewer) -> None:
    """Raises `Refused` for a viewer with read-only access."""
    if not viewer.may_change:
        raise Refused(
            "this key is read-only: `runtime keys create NAME --dashboard write` makes one that"
            " may change things"
        )


def key_digest_of(key: str) -> str:
    return digest(key.strip())


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

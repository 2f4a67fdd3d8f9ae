"""Texts by content hash: written once, readable by anyone who has the hash.

Texts that many runs share need not be sent with each run. The bus does not interpret the texts; a
text never changes, it only expires.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping

from loopline.bus.bounded import Remembered
from loopline.bus.bus import Bus
from loopline.bus.connection import retry_during_outage
from loopline.bus.keys import CONTENT_LIFE_MS

RENEW_SECONDS = 600.0
"""Seconds after which a process writes a text again, in case the server has lost its data."""
MAX_CONTENT_BYTES = 262_144
MAX_REMEMBERED = 4_096
"""Maximum number of texts that a process remembers as present on the bus; it rewrites the
others."""
GIVE_UP_SECONDS = 30.0
"""Seconds that a write waits for an unreachable server, as an admission does."""


class ContentWriter:
    """Texts that this process has written, so that it rarely rewrites them."""

    def __init__(self) -> None:
        self._written: Remembered[str, float] = Remembered(MAX_REMEMBERED)
        """Time of the last write (monotonic seconds), by digest."""

    def missing(self, digests: Mapping[str, str]) -> bool:
        """Whether one of these texts (name → digest) may be missing on the bus, as far as this
        process knows."""
        oldest = time.monotonic() - RENEW_SECONDS
        times = (self._written.get(digest) for digest in digests.values())
        return any(written is None or written <= oldest for written in times)

    async def write(self, bus: Bus, contents: Mapping[str, str]) -> None:
        """Write texts by digest. Raises ValueError for a text that is too long, and
        `BusUnavailable`."""
        for digest, text in contents.items():
            body = text.encode()
            if len(body) > MAX_CONTENT_BYTES:
                raise ValueError(
                    f"{digest[:12]} has {len(body)} bytes; a text has at most {MAX_CONTENT_BYTES}"
                )
            key = bus.keys.content(digest)
            await retry_during_outage(
                "content",
                lambda key=key, body=body: bus.redis.set(key, body, px=CONTENT_LIFE_MS),
                give_up_after=GIVE_UP_SECONDS,
            )
            self._written.set(digest, time.monotonic())


async def read_content(bus: Bus, digest: str) -> str | None:
    """The text with this SHA-256 (hexadecimal); None if the bus has none, or has a different text
    under that name. Raises `BusUnavailable`."""
    body = await retry_during_outage(
        "content",
        lambda: bus.redis.get(bus.keys.content(digest)),
        give_up_after=bus.patience,
        where=f"at {bus.settings.safe_url}",
    )
    if body is None or hashlib.sha256(body).hexdigest() != digest:
        return None
    return body.decode()

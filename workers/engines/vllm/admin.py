"""Requests to administrate a server: the client, and the error for a missing answer."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import httpx2

from loopline.workers.engines.protocol import EngineError

ADMIN_SECONDS = 120.0
"""Timeout for each answer and each part of a file: a disk may be slow."""
NO_ANSWER = (httpx2.HTTPError, OSError, RuntimeError)
"""What a connection raises in place of an answer. uvloop raises RuntimeError for a connection that
was reset while it was idle."""


def admin_client(
    url: str, headers: Mapping[str, str], auth: tuple[str, str] | None = None
) -> httpx2.AsyncClient:
    """Return a client for the server at `url`, without the environment's proxy."""
    return httpx2.AsyncClient(
        headers=headers,
        auth=auth,
        verify=httpx2.create_ssl_context() if url.startswith("https:") else False,
        trust_env=False,
        timeout=ADMIN_SECONDS,
    )


@contextmanager
def answer_of(name: str) -> Generator[None]:
    """Raise EngineError `unavailable` (retryable) if the server of this name does not answer."""
    try:
        yield
    except NO_ANSWER as error:
        raise EngineError(
            f"{name} does not answer ({type(error).__name__})", kind="unavailable", retryable=True
        ) from error

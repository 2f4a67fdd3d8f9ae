"""One gateway for all tests that only use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.gateway.served import Served, serving


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """A scripted deployment with a gateway. Don't stop or break it."""
    with serving("gateway.header_seconds=1", "gateway.body_seconds=1") as deployment:
        yield deployment

"""Rules of every bus test: the payload type is registered, and every key expires."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from loopline.bus import Bus
from loopline.testing import RedisProcess
from tests.bus.payloads import Note


@pytest.fixture(autouse=True)
def _known_payload(request: pytest.FixtureRequest) -> None:
    if "bus" in request.fixturenames:
        bus = request.getfixturevalue("bus")
        assert isinstance(bus, Bus)
        bus.registry.register("note", Note)


@pytest.fixture(autouse=True)
def _no_key_without_an_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every key that a test leaves has a time to live."""
    used = [
        name
        for name in ("shared_server", "own_server", "any_server")
        if name in request.fixturenames
    ]
    servers = [request.getfixturevalue(name) for name in used]
    yield
    for server in servers:
        assert isinstance(server, RedisProcess)
        if server.running:
            assert keys_without_an_end(server.url) == []


def keys_without_an_end(url: str, pattern: str = "*") -> list[bytes]:
    with redis.Redis.from_url(url) as client:
        keys = list(client.scan_iter(pattern, count=1000))
        lives: list[int] = []
        for start in range(0, len(keys), 500):
            pipe = client.pipeline(transaction=False)
            for key in keys[start : start + 500]:
                pipe.pttl(key)
            lives += pipe.execute()
        return [key for key, life in zip(keys, lives, strict=True) if life == -1]

"""Deltas on their way to followers, across a change of worker."""

from __future__ import annotations

import pytest

from loopline.bus import Bus
from loopline.workers import token_stream
from loopline.workers.engines.protocol import Delta
from loopline.workers.token_stream import TokenStream
from tests.bus.leasing import ask, take
from tests.bus.payloads import admit
from tests.workers.engines.asking import request


async def test_a_successor_continues_after_the_first_half_of_a_character(bus: Bus) -> None:
    """The first byte of a character has an id but no text yet; followers see no half of it."""
    run_id = await admit(bus, "other")
    await ask(bus, run_id)
    first = await take(bus, run_id, "first")
    stream = TokenStream(first, "slm", "m", continues=True)
    generate_request = request()
    assert await stream.resume(generate_request) == generate_request
    await stream.write(Delta(index=0, text="a", ids=(1,)))
    await stream.write(Delta(index=0, text="", ids=(2,)))
    await stream.flush()
    delivery = await take(bus, run_id, "second", after=first)
    second = TokenStream(delivery, "slm", "m", continues=True)
    assert (await second.resume(generate_request)).resume_ids == (1, 2)
    await second.write(Delta(index=0, text="é", ids=(3,)))
    await second.finish()
    entries = await bus.redis.xrange(bus.keys.shard_of(run_id).log(run_id))
    assert "".join(fields[b"text"].decode() for _, fields in entries) == "aé"


async def test_the_first_piece_is_published_at_once_and_the_next_ones_together(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_stream, "FLUSH_SECONDS", 1000)
    run_id = await admit(bus, "other")
    await ask(bus, run_id)
    stream = TokenStream(await take(bus, run_id, "first"), "slm", "m", continues=False)
    log = bus.keys.shard_of(run_id).log(run_id)

    async def published() -> list[str]:
        return [fields[b"text"].decode() for _, fields in await bus.redis.xrange(log)]

    await stream.write(Delta(index=0, text=""))  # the role alone
    assert await published() == []
    await stream.write(Delta(index=0, text="a"))
    assert await published() == ["a"]
    await stream.write(Delta(index=0, text="b"))
    await stream.write(Delta(index=0, text="c"))
    await stream.finish()
    assert await published() == ["a", "bc"]

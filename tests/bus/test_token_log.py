"""The token log: followers get every token once, whichever worker or follower dies at any point."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisConnectionError

from loopline.bus import Bus, LeaseLost, TokenWriter, log_follower
from loopline.bus.dead_letters import add_dead_letter
from loopline.testing import RedisProcess
from tests.bus.leasing import ask, take
from tests.bus.payloads import admit
from tests.bus.serving import until
from tests.conftest import quick_settings

TOKENS = list(range(100, 116))


def piece(ids: list[int]) -> str:
    return "".join(chr(token) for token in ids)


async def followed(
    bus: Bus, run_id: str, after: str = "0-0", only: int | None = None
) -> list[tuple[str, dict[str, str]]]:
    """Return log entries from `after` on: all until the end, or the first few before the follower
    dies."""
    entries: list[tuple[str, dict[str, str]]] = []
    if only == 0:
        return entries
    async for entry in bus.follow(run_id, after):
        entries.append(entry)
        if len(entries) == only:
            break
    return entries


def read(entries: list[tuple[str, dict[str, str]]]) -> tuple[list[int], str]:
    ids: list[int] = []
    text = ""
    for _, event in entries:
        if event["type"] == "restart":
            ids, text = [], ""
        if event["type"] in ("tokens", "restart"):
            assert int(event["offset"]) == len(ids), "no gap and no repeat"
            ids += json.loads(event["ids"])
            text += event["text"]
    return ids, text


@given(
    cuts=st.lists(st.integers(0, len(TOKENS)), max_size=4).map(sorted),
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    follower_dies_after=st.integers(0, 12),
    asleep=st.booleans(),
)
@example(cuts=[0, 0, 16, 16], pieces=[3], follower_dies_after=1, asleep=True)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_follower_sees_every_token_once_whatever_process_dies(
    shared_server: RedisProcess,
    cuts: list[int],
    pieces: list[int],
    follower_dies_after: int,
    asleep: bool,
) -> None:
    """At each cut the writer dies and another continues; with `asleep` the old one also wakes."""

    async def scenario() -> None:
        async with Bus(quick_settings(shared_server.url)) as bus:
            run_id = await admit(bus)
            await ask(bus, run_id)
            delivery = await take(bus, run_id, "writer-0")
            sizes = iter(pieces * len(TOKENS))
            sleepers: list[TokenWriter] = []
            for turn, cut in enumerate([*cuts, len(TOKENS)]):
                writer = TokenWriter(delivery, "slm")
                published = await writer.published()
                assert published.text == piece(list(published.ids))
                at = len(published.ids)
                assert list(published.ids) == TOKENS[:at]
                while at < cut:
                    ids = TOKENS[at : min(cut, at + next(sizes))]
                    await writer.append(piece(ids), ids)
                    at += len(ids)
                if turn < len(cuts):
                    sleepers.append(writer)
                    delivery = await take(bus, run_id, f"writer-{turn + 1}", delivery)
                if asleep:
                    for sleeper in sleepers:
                        with pytest.raises(LeaseLost):
                            await sleeper.append("!", [33])
            await delivery.reply(b"[]", store=True)
            for sleeper in sleepers if asleep else ():
                with pytest.raises(LeaseLost):
                    await sleeper.append("!", [33])
            await bus.cancel(run_id)
            everything = await followed(bus, run_id)
            entries = await followed(bus, run_id, only=min(follower_dies_after, len(everything)))
            if not entries or entries[-1][1]["type"] != "ended":
                entries += await followed(bus, run_id, entries[-1][0] if entries else "0-0")
            assert entries == everything
            assert read(entries) == (TOKENS, piece(TOKENS))

    asyncio.run(scenario())


async def test_a_piece_whose_answer_was_lost_is_not_published_twice(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await admit(bus)
    await ask(bus, run_id)
    writer = TokenWriter(await take(bus, run_id, "writer"), "slm")
    await writer.append("ab", [97, 98])
    send = bus.redis.evalsha
    cut: list[bool] = []

    async def lose_one(*args: object) -> object:
        answer = await send(*args)  # pyright: ignore
        if not cut:
            cut.append(True)
            raise RedisConnectionError("cut after it was applied")
        return answer  # pyright: ignore

    monkeypatch.setattr(bus.redis, "evalsha", lose_one)
    await writer.append("cd", [99, 100])
    await writer.append("e", [101])
    await bus.cancel(run_id)
    assert read(await followed(bus, run_id)) == ([97, 98, 99, 100, 101], "abcde")


async def test_a_restart_withdraws_the_published_tokens(bus: Bus) -> None:
    """A restart is for an engine that can't continue from ids and generated a different text."""
    run_id = await admit(bus)
    await ask(bus, run_id)
    first = await take(bus, run_id, "first")
    await TokenWriter(first, "slm").append("wrong", [1, 2])
    writer = TokenWriter(await take(bus, run_id, "second", first), "slm")
    await writer.published()
    await writer.append("ri", [3], restart=True)
    await writer.append("ght", [4])
    await bus.cancel(run_id)
    assert read(await followed(bus, run_id)) == ([3, 4], "right")
    assert (await writer.published()).text == "right"


async def test_text_without_token_ids_is_refused(bus: Bus) -> None:
    run_id = await admit(bus)
    await ask(bus, run_id)
    writer = TokenWriter(await take(bus, run_id, "writer"), "slm")
    with pytest.raises(ValueError, match="at least one id"):
        await writer.append("text", [])


async def test_tokens_of_a_run_that_is_gone_expire(bus: Bus) -> None:
    """The check after each test looks for keys without expiry."""
    run_id = await admit(bus)
    await ask(bus, run_id)
    delivery = await take(bus, run_id, "writer")
    shard = bus.keys.shard_of(run_id)
    await bus.redis.delete(shard.run(run_id), shard.log(run_id))
    await TokenWriter(delivery, "slm").append("a", [97])
    assert await bus.redis.pttl(shard.log(run_id)) > 0


async def test_a_follower_sees_tokens_while_they_are_written(bus: Bus) -> None:
    run_id = await admit(bus)
    await ask(bus, run_id)
    writer = TokenWriter(await take(bus, run_id, "writer"), "slm")
    texts: list[str] = []

    async def follow() -> None:
        async for _, event in bus.follow(run_id):
            texts.append(event.get("text", event["type"]))

    follower = asyncio.create_task(follow())
    for number, letter in enumerate("abc"):
        await writer.append(letter, [ord(letter)])
        await until(lambda n=number: len(texts) == n + 1, "the follower has it")
    await bus.cancel(run_id)
    await asyncio.wait_for(follower, 20)
    assert texts == ["a", "b", "c", "ended"]


async def test_the_key_that_wakes_a_reader_expires_even_if_the_reader_was_killed(bus: Bus) -> None:
    await admit(bus, "r")
    shard = bus.keys.shard_of("r")
    reader = log_follower._ShardReader(bus, shard)  # pyright: ignore[reportPrivateUsage]
    reader._blocked = True  # pyright: ignore[reportPrivateUsage] - as one that was killed in its read
    await reader.add(log_follower._Subscription(shard.log("r"), (0, 0)))  # pyright: ignore[reportPrivateUsage]
    (key,) = [key async for key in bus.redis.scan_iter(f"*{bus.settings.prefix}*-logs")]
    assert await bus.redis.pttl(key) > 0


async def test_a_follower_of_an_unknown_run_is_not_kept_waiting(bus: Bus) -> None:
    assert await asyncio.wait_for(followed(bus, "no-such-run"), 20) == []


async def test_a_retry_continues_the_text_of_a_request_that_became_a_dead_letter(bus: Bus) -> None:
    """Its run's log still contains the text, so its position must also be known."""
    run_id = await admit(bus, "other")
    await ask(bus, run_id)
    first = await take(bus, run_id, "first")
    await TokenWriter(first, "slm").append("ab", [1, 2])
    await add_dead_letter(
        bus, first.shard, "infer", first.lease, first.envelope.to_json(), "it kills"
    )
    await ask(bus, run_id)
    writer = TokenWriter(await take(bus, run_id, "second"), "slm")
    assert (await writer.published()).ids == (1, 2)
    await writer.append("c", [3])
    assert read(
        [
            (i.decode(), {k.decode(): v.decode() for k, v in fields.items()})
            for i, fields in await bus.redis.xrange(first.shard.log(run_id))
        ]
    ) == ([1, 2, 3], "abc")

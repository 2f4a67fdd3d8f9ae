"""Policies: published versions, the one in use, and how serving workers learn of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from loopline.bus import Bus, Policy, PolicyError, policies
from loopline.bus.connection import retry_during_outage
from loopline.testing import RedisProcess
from tests.conftest import quick_settings


async def test_each_publication_creates_a_version_and_puts_it_in_use(bus: Bus) -> None:
    for number in (1, 2):
        policy = await policies.publish(bus, "slm/caller", f"/adapters/{number}")
        assert (policy.current, policy.path_of(number)) == (number, f"/adapters/{number}")
    (stored,) = await policies.policies(bus)
    assert stored == policy
    assert stored.pool == "slm"


async def test_concurrent_publications_are_all_kept(bus: Bus) -> None:
    await asyncio.gather(*(policies.publish(bus, "slm", f"/{n}") for n in range(10)))
    (stored,) = await policies.policies(bus)
    assert [version.version for version in stored.versions] == list(range(1, 11))
    assert {version.path for version in stored.versions} == {f"/{n}" for n in range(10)}
    assert stored.current == 10


async def test_a_policy_s_initial_version_is_published_once_and_overrides_no_choice(
    bus: Bus,
) -> None:
    started = [policies.publish_first(bus, "umi/caller", "/shipped") for _ in range(5)]
    assert [
        (publication.current, len(publication.versions))
        for publication in await asyncio.gather(*started)
    ] == [(1, 1)] * 5
    await policies.publish(bus, "umi/caller", "/trained")
    assert (await policies.publish_first(bus, "umi/caller", "/shipped")).current == 2
    await policies.change(bus, "umi/planner", lambda policy: policy.with_version_in_use(0))
    assert (await policies.publish_first(bus, "umi/planner", "/shipped")).versions == ()


async def test_rollbacks_go_back_one_version_at_a_time_to_the_base_model(bus: Bus) -> None:
    for number in (1, 2, 3):
        await policies.publish(bus, "slm", f"/{number}")
    await policies.change(bus, "slm", lambda policy: policy.with_version_in_use(1))
    versions = [(await policies.change(bus, "slm", Policy.rolled_back)).current for _ in range(4)]
    assert versions == [3, 2, 1, 0]
    with pytest.raises(PolicyError, match="no other version in use before"):
        await policies.change(bus, "slm", Policy.rolled_back)


def test_a_forgotten_version_cannot_be_chosen_and_its_number_is_not_reused() -> None:
    policy = Policy(name="slm/red")
    for number in (1, 2, 3, 4):
        policy = policy.published(f"/{number}", 0.0)
    # The version in use, the target of a rollback, and the newest number stay.
    smaller_policy = policy.with_version_in_use(2).without_versions([1, 2, 3, 4])
    assert [version.version for version in smaller_policy.versions] == [2, 4]
    with pytest.raises(PolicyError, match="no version 3; there are: 0, 2, 4"):
        smaller_policy.with_version_in_use(3)
    assert smaller_policy.rolled_back().current == 4
    assert smaller_policy.published("/5", 0.0).current == 5


def test_a_rollback_skips_forgotten_versions() -> None:
    policy = Policy(name="slm/red")
    for number in (1, 2, 3, 4):
        policy = policy.published(f"/{number}", 0.0)
    policy = policy.without_versions([2])
    versions: list[int] = []
    while policy.earlier:
        policy = policy.rolled_back()
        versions.append(policy.current)
    assert versions == [3, 1, 0]


async def test_a_missing_version_cannot_be_pinned(bus: Bus) -> None:
    await policies.publish(bus, "slm", "/1")
    with pytest.raises(PolicyError, match="no version 7; there are: 0, 1"):
        await policies.change(bus, "slm", lambda policy: policy.with_version_in_use(7))


@pytest.mark.parametrize("name", ["", "a b", "slm/", "slm/../x/y", "x" * 65, "slm/caller\n"])
async def test_an_invalid_policy_name_is_refused(bus: Bus, name: str) -> None:
    with pytest.raises(PolicyError, match="not a policy's name"):
        await policies.publish(bus, name, "/1")


async def test_a_follower_sees_every_change(bus: Bus) -> None:
    async with aclosing(policies.follow(bus)) as changes, asyncio.timeout(30):
        assert await anext(changes) == []
        for number in (1, 2):
            published = await policies.publish(bus, "slm", f"/{number}")
            while await anext(changes) != [published]:
                continue


async def test_a_follower_survives_a_redis_restart(
    own_server: RedisProcess,
) -> None:
    bus = Bus(quick_settings(own_server.url))
    async with bus, aclosing(policies.follow(bus)) as changes, asyncio.timeout(60):
        await anext(changes)
        waiting = asyncio.ensure_future(anext(changes))
        own_server.kill()
        own_server.start()
        published = await retry_during_outage("publish", lambda: policies.publish(bus, "slm", "/1"))
        state = await waiting
        while state != [published]:
            state = await anext(changes)


MALFORMED: dict[str, bytes] = {
    "no JSON": b"{",
    "no object": b"[1]",
    "a field of another kind": b'{"name": "slm/bad", "versions": "none"}',
    "a negative version": b'{"name": "slm/bad", "current": -1}',
    "a version past counting": b'{"name": "slm/bad", "current": 1' + b"0" * 400 + b"}",
    "no number": b'{"name": "slm/bad", "versions": [{"version":1,"path":"/","published":NaN}]}',
    "a path past bounds": json.dumps(
        {
            "name": "slm/bad",
            "versions": [{"version": 1, "path": "x" * 5000, "published": 0}],
        }
    ).encode(),
    "more versions than are kept": json.dumps(
        {
            "name": "slm/bad",
            "versions": [{"version": n, "path": "/", "published": 0} for n in range(300)],
        }
    ).encode(),
    "more bytes than are read": b'{"name": "slm/bad", "x": "' + b"x" * 3_000_000 + b'"}',
    "deep nesting": b"[" * 100_000,
    "no text": b"\xff\xfe",
    "another one's name": b'{"name": "slm/other"}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_an_unreadable_policy_is_reported_and_hides_no_other(bus: Bus, body: bytes) -> None:
    good = await policies.publish(bus, "slm/good", "/good")
    await bus.redis.hset(bus.keys.policies, "slm/bad", body)  # pyright: ignore
    listing = await policies.load_policies(bus)
    assert listing.policies == (good,)
    assert list(listing.unreadable) == ["slm/bad"]
    assert "slm/bad" in listing.unreadable["slm/bad"]
    assert len(listing.unreadable["slm/bad"]) < 700
    with pytest.raises(PolicyError, match="slm/bad"):
        await policies.publish(bus, "slm/bad", "/new")


async def test_an_invalid_policy_name_hides_no_policy(bus: Bus) -> None:
    good = await policies.publish(bus, "slm", "/good")
    for name in (b"\xff", b"a b", b"x" * 100_000, b""):
        await bus.redis.hset(bus.keys.policies, name, b'{"name": "slm"}')  # pyright: ignore
    listing = await policies.load_policies(bus)
    assert listing.policies == (good,)
    assert max(map(len, listing.unreadable)) <= policies.MAX_SHOWN


async def test_a_follower_continues_past_an_unreadable_policy(bus: Bus) -> None:
    await policies.publish(bus, "slm", "/1")
    async with aclosing(policies.follow(bus)) as states:
        assert [policy.current for policy in await anext(states)] == [1]
        await bus.redis.hset(bus.keys.policies, "slm/bad", b"{")  # pyright: ignore
        await policies.publish(bus, "slm", "/2")
        assert [policy.current for policy in await anext(states)] == [2]

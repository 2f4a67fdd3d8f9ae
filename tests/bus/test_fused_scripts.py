"""A fused script does in one call what its parts do in sequence: the same answers and the same
data."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopline.bus import scripts
from loopline.bus.keys import GROUP, Shard
from loopline.testing import RedisProcess

ROLE, INFER, RUN = "role:chat", "infer:llm", "run-1"
STEP, ASKED = b'{"step": 1}', b'{"ask": 1}'
DISTURBANCES = st.sets(
    st.sampled_from(
        ["known run", "overloaded", "closed", "changed", "older step", "older request", "no group",
         "account", "step committed", "asked before", "budget", "used up"]
    ),
    max_size=3,
)  # fmt: skip

Call = Callable[[str, list[str], list[scripts.Value]], Any]


def data(client: redis.Redis, shard: Shard) -> dict[str, object]:
    """Return all data of the shard. Times and ids, which differ between calls, become `T`."""
    dump: dict[str, object] = {}
    for key in sorted(client.scan_iter(match=f"{{{shard.prefix}:*")):
        kind = client.type(key)
        match kind:
            case b"hash":
                value: object = sorted(client.hgetall(key).items())  # pyright: ignore
            case b"list":
                value = client.lrange(key, 0, -1)
            case b"zset":
                value = [member for member, _ in client.zrange(key, 0, -1, withscores=True)]  # pyright: ignore
            case b"stream":
                groups = client.xinfo_groups(key)
                waiting = client.xpending_range(key, GROUP, "-", "+", 10) if groups else []  # pyright: ignore
                holders = [(p["consumer"], p["times_delivered"]) for p in waiting]  # pyright: ignore
                value = (client.xrange(key), holders)
            case _:
                value = client.get(key)
        lives = client.pttl(key) >= 0  # pyright: ignore
        dump[key.decode().replace(shard.prefix, "P")] = (masked(value, shard), lives)
    return dump


def masked(value: object, shard: Shard) -> str:
    return re.sub(r"\b\d{13}(-\d+)?\b", "T", repr(value).replace(shard.prefix, "P"))


class Case:
    """One shard with the data that a disturbance left there."""

    def __init__(self, client: redis.Redis, disturbances: set[str]) -> None:
        self.client = client
        self.shard = shard = Shard(f"fused-{uuid.uuid4().hex}", 0)
        self.disturbances = disturbances
        for name in (ROLE, INFER):
            if "no group" not in disturbances:
                self.call("group", [shard.work(name)], [GROUP])
        if "known run" in disturbances:
            client.hset(shard.run(RUN), mapping={"state": "active", "deadline": 1})
            client.expire(shard.run(RUN), 100)
        if "closed" in disturbances:
            client.set(shard.closed, "", ex=100)
        if "changed" in disturbances:
            client.hset(shard.deployment, "epoch", "2")
            client.expire(shard.deployment, 100)
        for name, what in ((ROLE, "older step"), (INFER, "older request")):
            if what in disturbances:
                client.xadd(shard.work(name), {"e": "older"})
                client.expire(shard.work(name), 100)
        if "asked before" in disturbances:
            client.hset(shard.request("k"), "asked", "1")
            client.expire(shard.request("k"), 100)

        if "used up" in disturbances:
            client.hset(shard.budgets, "day", "[5,0,0]")
            client.expire(shard.budgets, 100)

    @property
    def scopes(self) -> str:
        limits = [9, 0, 0] if "budget" in self.disturbances else [0, 0, 0]
        return json.dumps([["key:somebody", *limits, 1], ["day", 0, 0, 0, 1]])

    def call(self, name: str, keys: list[str], args: list[scripts.Value]) -> Any:
        return scripts.call_sync(self.client, name, keys, args)

    @property
    def admit(self) -> tuple[list[str], list[scripts.Value]]:
        shard = self.shard
        account = "somebody" if "account" in self.disturbances else ""
        runs = 0 if "overloaded" in self.disturbances else 10
        return (
            [shard.run(RUN), shard.active, shard.trajectories, shard.history, shard.journal(RUN),
             shard.work(ROLE)],
            [RUN, b"{}", int(time.time() * 1000) + 60_000, runs, 10, 60_000, 0, 0, "inbox", 0, 0, 0,
             "1", account, 0, self.scopes, int("budget" in self.disturbances),
             1 if "older step" in self.disturbances else 0, "acme", 2, "", "", 0, 9, "", STEP,
             "chat"],
        )  # fmt: skip

    @property
    def request(self) -> tuple[list[str], list[scripts.Value]]:
        shard = self.shard
        guard = "0.0"
        return (
            [shard.request("k"), shard.work(INFER), shard.inbox("p"), shard.run(RUN)],
            [ASKED, 60_000, "k", guard, "pool"],
        )

    def mark_keys(self) -> list[str]:
        shard = self.shard
        return [shard.work(INFER), shard.request("k"), shard.run(RUN), shard.usage(RUN),
                shard.ledger]  # fmt: skip


def own(read: Any, body: bytes) -> bytes | None:
    if not read:
        return None
    [[entry, fields]] = read[1]
    return entry if fields[1] == body else None


@pytest.fixture
def client(any_server: RedisProcess) -> Any:
    with redis.Redis.from_url(any_server.url) as client:
        yield client


class TestStart:
    @settings(
        max_examples=60,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(disturbances=DISTURBANCES, asks=st.booleans(), marks=st.booleans())
    def test_the_fused_script_does_what_its_three_parts_do(
        self, client: redis.Redis, disturbances: set[str], asks: bool, marks: bool
    ) -> None:
        apart, fused = Case(client, disturbances), Case(client, disturbances)
        right = self.one_after_the_other(apart, asks, marks and asks)
        actual = self.in_one(fused, asks, marks and asks)
        assert masked(actual, fused.shard) == masked(right, apart.shard)
        assert data(client, fused.shard) == data(client, apart.shard)

    def one_after_the_other(self, case: Case, asks: bool, marks: bool) -> list[Any]:
        results = [case.call("admit", *case.admit)]
        if not asks or len(results[0]) < 2 or results[0][0] != b"admitted":
            return results
        if own(results[0][1], STEP) is None:
            return results
        results.append(case.call("request", *case.request))
        entry = own(results[1][2], ASKED) if len(results[1]) == 3 else None
        if marks and entry is not None:
            line = b'{"sent_as":"pool/1/' + entry + b'/1"}'
            args: list[scripts.Value] = [GROUP, entry, "pool", 1, "0.0", 1, 6, 7, line]
            results.append(case.call("mark", case.mark_keys(), args))
        return results

    def in_one(self, case: Case, asks: bool, marks: bool) -> list[Any]:
        admit_keys, admit_args = case.admit
        request_keys, request_args = case.request if asks else ([], [])
        mark: list[scripts.Value] = [1, 6, 7, b'{"sent_as":"pool/1/', b'/1"}'] if marks else []
        counts: list[scripts.Value] = [
            len(admit_keys), len(admit_args), len(request_keys), len(request_args)
        ]  # fmt: skip
        return case.call(
            "start", [*admit_keys, *request_keys], [*counts, *admit_args, *request_args, *mark]
        )


class TestReplyAndCommit:
    @settings(
        max_examples=60,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(
        troubles=st.sets(
            st.sampled_from(["request taken over", "step taken over", "run over", "replied before"])
        ),
        repeats=st.integers(1, 2),
    )
    def test_it_replies_and_then_commits_a_step_based_on_valid_replies(
        self, client: redis.Redis, troubles: set[str], repeats: int
    ) -> None:
        apart, fused = Case(client, set()), Case(client, set())
        for case, run in ((apart, self.one_after_the_other), (fused, self.in_one)):
            step, request = self.begun(case)
            self.trouble(case, troubles, step, request)
            case.words = [run(case, step, request) for _ in range(repeats)]  # type: ignore[attr-defined]
        assert fused.words == apart.words  # type: ignore[attr-defined]
        assert data(client, fused.shard) == data(client, apart.shard)

    def begun(self, case: Case) -> tuple[bytes, bytes]:
        """Return the ids of the step and its request, both held here."""
        step = own(case.call("admit", *case.admit)[1], STEP)
        request = own(case.call("request", *case.request)[2], ASKED)
        assert step is not None
        assert request is not None
        args: list[scripts.Value] = [GROUP, request, "pool", 1, "0.0", 1, 6, 7, UNKNOWN]
        assert case.call("mark", case.mark_keys(), args) == b"ok"
        return step, request

    def trouble(self, case: Case, troubles: set[str], step: bytes, request: bytes) -> None:
        client, shard = case.client, case.shard
        if "replied before" in troubles:
            case.call("reply", *self.reply(case, request))
        if "request taken over" in troubles:
            client.xclaim(shard.work(INFER), GROUP, "another", 0, [request])
        if "step taken over" in troubles:
            client.xclaim(shard.work(ROLE), GROUP, "another", 0, [step])
        if "run over" in troubles:
            client.hset(shard.run(RUN), "state", "ended")

    def reply(self, case: Case, request: bytes) -> tuple[list[str], list[scripts.Value]]:
        args: list[scripts.Value] = [
            GROUP, request, "pool", 1, b'"42"', 1, 60_000, "0.0", case.shard.inbox("p"),
            USED, DISCARDED,
        ]  # fmt: skip
        return case.mark_keys(), args

    def commit(self, case: Case, step: bytes) -> tuple[list[str], list[scripts.Value]]:
        shard = case.shard
        keys = [shard.active, shard.trajectories, shard.history, shard.ledger, shard.work(ROLE),
                shard.run(RUN), shard.journal(RUN), shard.log(RUN), shard.usage(RUN)]  # fmt: skip
        args: list[scripts.Value] = [
            1, 0, 60_000, GROUP, shard.inbox("p"), step, "chat", 1, RUN, "0.0", b'{"journal": 1}',
            7, 0, 0, "", "", "", "answered", "42", "",
        ]  # fmt: skip
        return keys, args

    def one_after_the_other(self, case: Case, step: bytes, request: bytes) -> list[bytes]:
        words = [case.call("reply", *self.reply(case, request))]
        if words[0] in (b"ok", b"already"):
            words += case.call("commit", *self.commit(case, step))
        return words

    def in_one(self, case: Case, step: bytes, request: bytes) -> list[bytes]:
        reply_keys, reply_args = self.reply(case, request)
        commit_keys, commit_args = self.commit(case, step)
        return case.call(
            "reply_and_commit",
            [*reply_keys, *commit_keys],
            [1, len(reply_args), *reply_args, *commit_args],
        )


UNKNOWN = b'{"usage":null,"unknown":{"prompt":1,"completion":1,"micro_dollars":1}}'
USED = b'{"usage":{"prompt":1,"completion":1},"cost_micro_dollars":0}'
DISCARDED = b'{"usage":{"prompt":1,"completion":1},"cost_micro_dollars":0,"discarded":true}'

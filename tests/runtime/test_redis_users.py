"""The rights of each user of the access list."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from redis.exceptions import NoPermissionError

from loopline.bus import Admission, Bus, BusSettings, Envelope, Limits, Outgoing, Scope
from loopline.bus.budgets import set_limits
from loopline.bus.keys import Keys
from loopline.runtime.redis import users as redis_users
from loopline.runtime.redis.users import KINDS, UserKind, rules, url_as, user_name
from loopline.testing import RedisProcess, installed_servers, running_redis
from loopline.workers.messages import role_stream
from tests.runtime.conftest import Deployment

pytestmark = pytest.mark.system

PREFIX = "sw.a"
SHARD = Keys(PREFIX, 2).shard(1)
KEYS = {
    "journal": SHARD.journal("r1"),
    "log": SHARD.log("r1"),
    "ended runs": SHARD.trajectories,
    "ledger": SHARD.ledger,
    "rewards": SHARD.rewards,
    "reward ids": SHARD.reward_ids("r1"),
    "steps": SHARD.work("role:planner"),
    "requests of models": SHARD.work("infer:slm"),
    "requests of tools": SHARD.work("tools"),
    "programs": SHARD.work("judge"),
    "policies": Keys(PREFIX, 2).policies,
    "idempotency": SHARD.idempotency("k1"),
    "sessions": Keys(PREFIX, 2).session("s1"),
    "API keys": Keys(PREFIX, 2).api_keys,
    "queue": f"{PREFIX}:jobs",
    "another deployment": Keys("sw.b", 2).shard(1).active,
    "a key of others": "mine",
}
READ: dict[UserKind, set[str]] = {
    "role": {
        "journal", "log", "ended runs", "ledger", "rewards", "reward ids", "steps",
        "requests of models", "requests of tools", "programs", "policies", "idempotency",
    },
    "gpu": {"log", "ledger", "requests of models", "policies"},
    "tool": {"ledger", "requests of tools"},
    "judge": {"ledger", "programs"},
    "recorder": {"ended runs", "ledger", "rewards", "policies", "journal", "steps"},
    "gateway": set(KEYS) - {"queue", "another deployment", "a key of others"},
    "jobs": set(KEYS) - {"another deployment", "a key of others"},
    "client": set(KEYS) - {"another deployment", "a key of others"},
}  # fmt: skip
NEVER = (
    "CONFIG GET *", "CONFIG SET dir /", "FLUSHALL", "FLUSHDB", "KEYS *", "ACL LIST", "ACL WHOAMI",
    "DEBUG OBJECT x", "SCRIPT FLUSH", "SCRIPT KILL", "FUNCTION LIST", "SHUTDOWN", "SAVE",
    "CLIENT LIST", "CLIENT KILL ID 1", "MONITOR", "REPLICAOF NO ONE", "SUBSCRIBE x", "PUBLISH x y",
    "SLOWLOG GET", "MODULE LIST", "MIGRATE h 1 k 0 1", "SWAPDB 0 1", "RENAME a b", "COPY a b",
    "DUMP a", "OBJECT ENCODING a", "RANDOMKEY", "EVAL_RO x 0",
)  # fmt: skip


def password(kind: UserKind) -> str:
    return f"of-{kind}"


@pytest.fixture(scope="module", params=sorted(installed_servers()))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisProcess]:
    """A server with a user for each kind, and a value under each key."""
    folder = tmp_path_factory.mktemp("users")
    with running_redis(folder / "redis", binary=installed_servers()[request.param]) as process:
        with redis.Redis.from_url(process.url) as admin:
            for kind in KINDS:
                words = rules(PREFIX, kind, password(kind)).split()
                admin.execute_command("ACL", "SETUSER", user_name(PREFIX, kind), *words)
            for key in KEYS.values():
                admin.set(key, "what stands there")
        yield process


def url_of(server: RedisProcess, kind: UserKind) -> str:
    return url_as(server.url, user_name(PREFIX, kind), password(kind))


@pytest.mark.parametrize("kind", KINDS)
async def test_every_user_can_join_the_bus(server: RedisProcess, kind: UserKind) -> None:
    """It also passes the probe of everything that the bus does."""
    settings = BusSettings(redis_url=url_of(server, kind), prefix=PREFIX)
    async with Bus(settings, standing="guest" if kind == "client" else "worker") as bus:
        assert await bus.redis.ping()


@pytest.mark.parametrize("kind", ["role", "recorder", "gateway", "client"])
async def test_users_that_admit_runs_may_reserve_budgets_and_queue_runs(
    server: RedisProcess, kind: UserKind
) -> None:
    """A role admits runs of schedules, a recorder shadow runs."""
    settings = BusSettings(
        redis_url=url_of(server, kind), prefix="sw.admits", max_working=1, shards=1
    )
    with redis.Redis.from_url(server.url) as admin:
        user = user_name("sw.admits", kind)
        admin.execute_command(
            "ACL", "SETUSER", user, *rules("sw.admits", kind, password(kind)).split()
        )
    as_user = settings.model_copy(update={"redis_url": url_as(server.url, user, password(kind))})
    owner = settings.model_copy(update={"redis_url": server.url})
    async with Bus(owner) as bus, Bus(as_user, standing="guest") as admitting:
        await set_limits(bus, "day", Limits(milliseconds=600_000_000))
        for _ in range(2):
            run_id = str(uuid.uuid4())
            message = Outgoing(role_stream("solo"), envelope_of(run_id))
            assert await admitting.admit(
                Admission(
                    run_id, b"{}", admitting.clock.now() + 60, (message,), scopes=(Scope("day"),)
                )
            )
            assert (await bus.run_state(run_id)).active


def envelope_of(run_id: str) -> Envelope:
    return Envelope(
        type="note", run_id=run_id, turn=0, branch=0, deadline=time.time() + 60, payload={}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_can_read_only_the_keys_that_its_kind_needs(
    server: RedisProcess, kind: UserKind
) -> None:
    """By a plain command, and by a script."""
    read: set[str] = set()
    with redis.Redis.from_url(url_of(server, kind)) as client:
        for name, key in KEYS.items():
            for ask in (
                lambda key=key: client.get(key),
                lambda key=key: client.eval("return redis.call('GET', KEYS[1])", 1, key),
                lambda key=key: client.eval(f"return redis.call('GET', '{key}')", 0),
            ):
                # For a script, a server of version 7.0 reports a refusal only in its text.
                with suppress(NoPermissionError, redis.ResponseError):
                    assert ask() == b"what stands there"
                    read.add(name)
    assert read == READ[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_no_user_may_inspect_or_change_the_server(server: RedisProcess, kind: UserKind) -> None:
    with redis.Redis.from_url(url_of(server, kind)) as client:
        for command in NEVER:
            # The server refuses DEBUG to everyone before it checks rights.
            with pytest.raises(redis.ResponseError, match=r"ermissions to run|DEBUG command not"):
                client.execute_command(*command.split())


def test_a_worker_that_answers_requests_can_write_to_inboxes_but_not_read_them(
    server: RedisProcess,
) -> None:
    inbox = SHARD.inbox("a-process")
    with redis.Redis.from_url(url_of(server, "tool")) as client:
        assert client.eval(f"return redis.call('XADD', '{inbox}', '*', 'a', '1')", 0)
        with pytest.raises(NoPermissionError):
            client.xread({inbox: "0"})


def test_the_rights_of_a_user_replace_its_earlier_rights(server: RedisProcess) -> None:
    user = user_name(PREFIX, "judge")
    with redis.Redis.from_url(server.url) as admin:
        before = admin.acl_getuser(user)
        admin.execute_command("ACL", "SETUSER", user, "allkeys", "+@all", ">another")
        words = rules(PREFIX, "judge", password("judge")).split()
        admin.execute_command("ACL", "SETUSER", user, *words)
        assert admin.acl_getuser(user) == before


def test_passwords_are_derived_from_the_owners_and_differ() -> None:
    passwords = {redis_users.password_of("secret", user_name(PREFIX, kind)) for kind in KINDS}
    assert len(passwords) == len(KINDS)
    assert not passwords & {
        redis_users.password_of("other", user_name(PREFIX, kind)) for kind in KINDS
    }


def test_a_server_can_load_the_printed_list(deployment: Deployment, tmp_path: Path) -> None:
    """The passwords that are printed with it are those of its users."""
    result = deployment.run("redis", "acl", "--prefix", PREFIX)
    assert result.returncode == 0
    passwords = dict(re.findall(r"(\w+): rediss://[\w.-]+:(\w+)@HOST", result.stderr))
    assert set(passwords) == set(KINDS)
    assert not any(word in result.stdout for word in passwords.values())
    users = tmp_path / "users.acl"
    users.write_text(result.stdout)
    for name, binary in installed_servers().items():
        with running_redis(tmp_path / name, "--aclfile", str(users), binary=binary) as process:
            for kind in KINDS:
                url = url_as(process.url, user_name(PREFIX, kind), passwords[kind])
                with redis.Redis.from_url(url) as client:
                    assert client.ping()


def test_workers_of_one_deployment_are_different_users_and_get_no_refusals(
    deployment: Deployment,
) -> None:
    deployment.up()
    assert deployment.ask("What is 2 + 2?")["outcome"] == "answered"
    run = deployment.state.running()
    assert run is not None
    with redis.Redis.from_url(run.redis_url) as admin:
        connected = {client["user"] for client in cast("list[Any]", admin.client_list())}
        assert {
            user_name("loopline", kind) for kind in ("role", "gpu", "tool", "recorder")
        } <= connected
        log = cast("list[Any]", admin.acl_log())
        refused = [entry for entry in log if entry["object"] != "client|setinfo"]
        assert not refused

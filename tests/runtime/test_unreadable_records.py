"""A record that can't be read (another program or version wrote it) is reported and hides no
other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from loopline.agents.approvals import ApprovalRequest
from loopline.bus import BusSettings, Keys
from loopline.runtime.cli import app
from loopline.runtime.errors import EXIT_FAILED, UserError
from loopline.runtime.gateway.api_keys import ApiKey
from loopline.workers.tool import CallNote
from tests.runtime.test_run_index import record_of

GARBAGE = [b"nonsense", b'{"version": 999}', b"\xff\xfe"]
RUN, OTHER = "0199d3a0-0000-7000-8000-000000000001", "0199d3a0-0000-7000-8000-000000000002"


@pytest.fixture
def keys(settings: BusSettings) -> Keys:
    return Keys(settings.prefix, settings.shards)


@pytest.fixture
def server(settings: BusSettings) -> Iterator[redis.Redis]:
    """Other tests share it, so keys that the test writes without an expiry are deleted."""
    with redis.Redis.from_url(settings.redis_url) as client:
        yield client
        for key in client.scan_iter(f"*{settings.prefix}*"):
            client.unlink(key)


@pytest.fixture
def listed(
    settings: BusSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs `runtime …` on the bus; exit code, output, errors."""
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path))
    monkeypatch.setenv("LOOPLINE_BUS__PREFIX", settings.prefix)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [*arguments, "--redis-url", settings.redis_url])
        if isinstance(result.exception, UserError):  # `runtime` itself prints these
            return result.exception.exit_code, result.stdout, str(result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.stdout, result.stderr

    return run


Listed = Callable[..., tuple[int, str, str]]


def require_named(listed: Listed, command: tuple[str, ...], name: str, whole: str) -> None:
    """The list shows the readable record and reports the other."""
    for form in ((), ("--json",)):
        code, output, errors = listed(*command, *form)
        assert (code, whole in output) == (EXIT_FAILED, True)
        assert name in errors
        assert "can't be read" in errors


def add_wait(server: redis.Redis, keys: Keys, run_id: str, note: bytes) -> None:
    shard, later = keys.shard_of(run_id), int(time.time() * 1000) + 60_000
    line = b"\n".join([b"approval", b"k", b"%d" % later, b"1", b"work", note, b"", b""])
    server.hset(shard.run(run_id), mapping={"state": "active", "run": "{}", "wait:1.0": line})
    server.zadd(shard.waits, {f"{run_id}/1.0": later})


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_unreadable_note_of_a_call_is_reported_and_can_be_removed(
    server: redis.Redis, keys: Keys, listed: Listed, garbage: bytes
) -> None:
    shard = keys.shard_of(RUN)
    note = CallNote(
        key=f"{RUN}/1.0/b", run_id=RUN, agent="caller", tool="order", arguments={}, worker="w",
        began=1.0, why="its worker is gone",
    )  # fmt: skip
    for name, body in (("a", garbage), ("b", note.model_dump_json().encode())):
        server.hset(
            shard.effects, mapping={shard.request(f"{RUN}/1.0/{name}"): b"w/1/1-1\nwork\n" + body}
        )
    require_named(listed, ("effects", "ls"), f"{RUN}/1.0/a", "order")
    code, output, _ = listed("effects", "resolve", f"{RUN}/1.0/a", "--again")
    assert (code, "removed from the list" in output) == (0, True), (
        "an unreadable one blocks nothing"
    )
    assert listed("effects", "ls")[0] == 0


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_unreadable_run_is_reported(
    server: redis.Redis, keys: Keys, listed: Listed, garbage: bytes
) -> None:
    for run_id, record in ((RUN, garbage), (OTHER, record_of(OTHER, "How old?").encode())):
        shard = keys.shard_of(run_id)
        server.hset(shard.run(run_id), mapping={"state": "active", "run": record})
        server.zadd(shard.runs(), {run_id: int(time.time() * 1000)})
    require_named(listed, ("runs", "ls"), RUN, "How old?")


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_unreadable_approval_is_reported(
    server: redis.Redis, keys: Keys, listed: Listed, garbage: bytes
) -> None:
    request = ApprovalRequest(
        request="k", kind="tool", name="refund", agent="shop", arguments={}, digest="0" * 64,
        seconds=60,
    )  # fmt: skip
    add_wait(server, keys, RUN, garbage)
    add_wait(server, keys, OTHER, request.model_dump_json().encode())
    require_named(listed, ("approvals", "ls"), f"{RUN}:1.0", "refund")
    _, _, errors = listed("approvals", "deny", f"{RUN}:1.0")
    assert "can't be read" in errors


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_unreadable_schedule_is_reported(
    server: redis.Redis, keys: Keys, listed: Listed, garbage: bytes
) -> None:
    assert listed("schedule", "add", "good", "How old?", "--cron", "0 7 * * *")[0] == 0
    server.hset(keys.shard(0).schedules, mapping={"bad": garbage})
    require_named(listed, ("schedule", "ls"), "the schedule bad", "How old?")


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_unreadable_policy_is_reported(
    server: redis.Redis, keys: Keys, listed: Listed, garbage: bytes
) -> None:
    server.hset(keys.policies, mapping={"slm/bad": garbage, "slm/good": '{"name": "slm/good"}'})
    require_named(listed, ("policies", "ls"), "slm/bad", "slm/good")


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_unreadable_api_key_is_reported(
    server: redis.Redis, keys: Keys, listed: Listed, garbage: bytes
) -> None:
    good = ApiKey(id="b" * 12, name="somebody", created=1.0)
    server.hset(keys.api_keys, mapping={"a" * 64: garbage, "b" * 64: good.model_dump_json()})
    require_named(listed, ("keys", "ls"), "a" * 12, "somebody")


JOB = {"t": None, "f": "run_program", "k": {}, "et": 1_700_000_000_000}
GOOD = {"program": "bench", "argv": ["gsm8k"], "cwd": "/", "output": ""}


@pytest.mark.parametrize(
    "body",
    [*GARBAGE, json.dumps({**JOB, "a": [{**GOOD, "of a newer version": 1}]}).encode(),
     json.dumps({**JOB, "a": [7]}).encode()],
)  # fmt: skip
def test_an_unreadable_job_is_reported(
    server: redis.Redis, settings: BusSettings, listed: Listed, body: bytes
) -> None:
    bad, good = f"{settings.prefix}-bad", f"{settings.prefix}-good"
    for job_id, content in ((bad, body), (good, json.dumps({**JOB, "a": [GOOD]}))):
        server.set(f"arq:job:{job_id}", content, px=60_000)
        server.zadd(f"{settings.prefix}:jobs", {job_id: 1_700_000_000_000})
    require_named(listed, ("jobs", "ls"), bad, "gsm8k")


@pytest.mark.parametrize("limits", ["nonsense", "[1]x", '["a"]', "[1, 2, 3, 4]", "7"])
def test_an_unreadable_budget_is_an_error(
    server: redis.Redis, keys: Keys, listed: Listed, limits: str
) -> None:
    """Without this limit, the list would claim that there are none."""
    server.hset(keys.shard(0).budgets, "tenant:acme", limits)
    code, _, errors = listed("budgets", "ls")
    assert code != 0
    assert "tenant:acme" in errors
    assert "can't be read" in errors

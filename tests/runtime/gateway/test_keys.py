"""Keys of callers: what each may use, and for how much."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from loopline.bus import Bus
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.gateway.api_keys import Authentication, own_key
from loopline.runtime.supervise.detached import show_new_key
from loopline.testing import RedisProcess
from tests.conftest import quick_settings
from tests.runtime.conftest import until
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

QUESTION = {"model": "slm", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer sk-loopline-wrong", "Basic eDp5"])
def test_a_request_without_a_known_key_is_refused(
    scripted: ScriptedGateway, header: str | None
) -> None:
    with scripted.client() as client:
        del client.headers["authorization"]
        if header is not None:
            client.headers["authorization"] = header
        answer = client.post(CHAT, json=QUESTION)
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"


def test_a_key_may_use_only_the_models_that_it_lists(scripted: ScriptedGateway) -> None:
    key = scripted.new_key("scoped", "--model", "slm*")["key"]
    with scripted.client(key) as client:
        listed = [model["id"] for model in client.get("/v1/models").json()["data"]]
        assert listed == ["slm"]
        assert client.post(CHAT, json=QUESTION).status_code == 200
        for body in ({**QUESTION, "model": "llm"}, {**QUESTION, "model": "workflow/solo"}):
            answer = client.post(CHAT, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                403,
                "model_not_allowed",
            )
        run = {"workflow": "solo", "prompt": "x"}
        assert client.post("/v1/runs", json=run).status_code == 403


def test_a_revoked_key_is_refused_within_a_moment(scripted: ScriptedGateway) -> None:
    record = scripted.new_key("leaver")
    with scripted.client(record["key"]) as client:
        assert client.get("/v1/models").status_code == 200
        scripted.ok("keys", "revoke", record["id"])
        until(lambda: client.get("/v1/models").status_code == 401, "the key's end")
    assert scripted.run("keys", "revoke", "nosuchkey").returncode == 2


def test_a_call_that_could_exceed_the_daily_tokens_is_refused(
    scripted: ScriptedGateway,
) -> None:
    record = scripted.new_key("thrifty", "--tokens-per-day", "1000")
    used = 0
    with scripted.client(record["key"]) as client:
        while (answer := client.post(CHAT, json=QUESTION)).status_code == 200:
            used += answer.json()["usage"]["total_tokens"]
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "insufficient_quota")
    assert f"{used:,} tokens spent" in error["message"]
    assert 0 < int(answer.headers["retry-after"]) <= 86_400
    assert answer.headers["x-should-retry"] == "false"
    listed = json.loads(scripted.ok("keys", "ls", "--json"))
    (line,) = [key for key in listed if key["id"] == record["id"]]
    assert 0 < line["tokens_today"] == used <= 1_000


def test_no_key_is_stored_on_the_bus_in_a_log_or_in_a_file_that_others_can_read(
    scripted: ScriptedGateway,
) -> None:
    record = scripted.new_key("hidden")
    with scripted.client(record["key"]) as client:
        client.post(CHAT, json=QUESTION).raise_for_status()
    for path in Path(scripted.state.path).rglob("*"):
        if path.is_file() and not path.is_socket():
            content = path.read_bytes()
            assert record["key"].encode() not in content, path
            if scripted.key.encode() in content:
                assert path == scripted.state.gateway_key
                assert path.stat().st_mode & 0o777 == 0o600


def test_the_list_of_keys_shows_the_rights_of_each(scripted: ScriptedGateway) -> None:
    record = scripted.new_key(
        "manager", "--tenant", "acme", "--seconds-per-day", "60", "--dashboard", "read",
        "--approves",
    )  # fmt: skip
    [line] = [line for line in scripted.ok("keys", "ls").splitlines() if record["id"] in line]
    assert line.rstrip().endswith("tenant acme, 60 s a day, dashboard read, approves")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("x" * 65,), "name"),
        (("x", "--tenant", "y" * 65), "tenant"),
        (("x", "--dollars-per-day", "inf"), "--dollars-per-day"),
    ],
)
def test_a_key_that_cannot_be_is_refused_in_one_line(
    scripted: ScriptedGateway, words: tuple[str, ...], named: str
) -> None:
    refused = scripted.run("keys", "create", *words)
    assert refused.returncode == 2
    assert named in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_new_key_is_shown_only_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDirectory(tmp_path)
    state.gateway_key.write_text("sk-loopline-new\n")
    show_new_key(state)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show_new_key(state)
    assert "key: sk-loopline-new (not shown again)" in capsys.readouterr().out


async def test_a_gateway_that_starts_while_redis_restarts_gets_its_key(
    own_server: RedisProcess, tmp_path: Path
) -> None:
    async with Bus(quick_settings(own_server.url)) as bus:
        own_server.kill()
        adding = asyncio.create_task(own_key(bus, StateDirectory(tmp_path)))
        while not (tmp_path / "gateway.key").exists():  # noqa: ASYNC110 - made before Redis is told
            await asyncio.sleep(0.01)
        own_server.start()
        async with asyncio.timeout(20):
            key = await adding
        assert (await Authentication(bus).caller(f"Bearer {key}")).name == "runtime up"

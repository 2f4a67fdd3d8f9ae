"""Requests that no well-behaved client sends: each is refused with a specific error."""

from __future__ import annotations

import json

import httpx
import pytest

from loopline.agents.records import Run
from loopline.workers.store.rewards import read_rewards, targets_of
from tests.runtime.conftest import until
from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving
from tests.runtime.gateway.test_native_api import QUESTION

CHAT = "/v1/chat/completions"


def post(client: httpx.Client, body: str | bytes, path: str = CHAT) -> httpx.Response:
    return client.post(path, content=body)


@pytest.mark.parametrize(
    "body",
    [
        '{"model":"llm","messages":' + "[" * 300 + "]" * 300 + "}",
        '{"model":"llm","messages":[],"metadata":' + '{"a":' * 70 + "1" + "}" * 71,
        "[" * 100_000,
        '{"model": NaN}',
        rb'{"model": "\ud800"}',
        b'{"model": "\xff"}',
        "null",
        "",
    ],
)
def test_a_body_that_no_record_can_store_is_refused_as_invalid_json(
    scripted: ScriptedGateway, body: str | bytes
) -> None:
    with scripted.client() as client:
        answer = post(client, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    "arguments", ['{"a": NaN}', r'{"a": "\ud800"}', '{"a":' + "[" * 100 + "]" * 100 + "}", "{", ""]
)
def test_call_arguments_that_are_not_json_are_accepted_as_text(
    scripted: ScriptedGateway, arguments: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    ]
    items = [
        {"role": "user", "content": "What is 2 + 2?"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
    ]
    with scripted.client() as client:
        for path in (CHAT, f"/sessions/hostile/{CHAT.lstrip('/')}"):
            answer = client.post(path, json={"model": "llm", "messages": messages})
            assert answer.status_code == 200, answer.text
        answer = client.post("/v1/responses", json={"model": "llm", "input": items})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("limit", ["0", "101", "0000000001" + "0" * 5_000, "٣", "x"])
def test_an_invalid_limit_of_a_list_is_refused(scripted: ScriptedGateway, limit: str) -> None:
    with scripted.client() as client:
        answer = client.get("/v1/runs", params={"limit": limit})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")


@pytest.mark.parametrize("after", ["99999999999999999999-1", "1-", "٣-٣", "1-1-1", "-1-1", "$"])
def test_events_after_an_invalid_id_are_refused_and_the_run_stays_readable(
    scripted: ScriptedGateway, after: str
) -> None:
    with scripted.client() as client:
        run_id = client.post("/v1/runs", json=QUESTION).json()["id"]
        answer = client.get(f"/v1/runs/{run_id}/events", params={"after": after})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_event_id")
        assert "ended" in client.get(f"/v1/runs/{run_id}/events").text


@pytest.mark.parametrize("event", ["1_0-0/1", "+1-1/1", "1-1", "1-1/1/1", "9" * 5_000])
def test_a_stream_after_an_invalid_event_id_is_refused(
    scripted: ScriptedGateway, event: str
) -> None:
    body = {"model": "llm", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    with scripted.client() as client:
        answer = client.post(CHAT, json=body, headers={"last-event-id": event})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_event_id")


def test_no_key_can_read_continue_or_cancel_another_keys_runs(scripted: ScriptedGateway) -> None:
    stranger_key = scripted.new_key("stranger")["key"]
    body = {"model": "llm", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
    with scripted.client() as owner, scripted.client(stranger_key) as stranger:
        chat = owner.post(CHAT, json=body, headers={"idempotency-key": "mine"}).json()["id"]
        response = owner.post("/v1/responses", json={"model": "llm", "input": "Hello"}).json()
        run_id = chat.removeprefix("chatcmpl-")
        for path in (
            f"{CHAT}/{chat}", f"{CHAT}/{chat}?stream=true", f"/v1/runs/{run_id}",
            f"/v1/runs/{run_id}/events", f"/v1/responses/{response['id']}",
            f"/v1/responses/{response['id']}?stream=true",
            f"/v1/responses/{response['id']}/input_items",
            f"/sessions/s/v1/responses/{response['id']}",
        ):  # fmt: skip
            assert owner.get(path).status_code == 200, path
            assert stranger.get(path).status_code == 404, path
        for path in (f"/v1/responses/{response['id']}/cancel", f"/v1/runs/{run_id}/cancel"):
            assert stranger.post(path).status_code == 404, path
        assert stranger.delete(f"/v1/responses/{response['id']}").status_code == 404
        (answer,) = response["output"]
        refused = (
            {"model": "llm", "input": "x", "previous_response_id": response["id"]},
            {"model": "llm", "input": [{"type": "item_reference", "id": answer["id"]}]},
        )  # fmt: skip
        for request in refused:
            assert owner.post("/v1/responses", json=request).status_code == 200, request
            assert stranger.post("/v1/responses", json=request).status_code == 404, request
        # Callers don't share idempotency keys.
        other = stranger.post(CHAT, json=body, headers={"idempotency-key": "mine"}).json()["id"]
        assert other != chat


def test_the_reward_of_a_session_reaches_only_runs_of_the_same_key() -> None:
    with serving("workers.recorder.count=1") as scripted:
        stranger_key = scripted.new_key("stranger")["key"]
        body = {"model": "llm", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
        reward = {"value": 1.0, "id": "r1"}
        path = "/v1/sessions/shared/feedback"
        with scripted.client() as owner, scripted.client(stranger_key) as stranger:
            chat = owner.post("/sessions/shared/v1/chat/completions", json=body).json()["id"]
            assert stranger.post(path, json={**reward, "value": -9.0}).json()["new"]
            assert owner.post(path, json=reward).json()["new"]  # the stranger's id does not count
        printed = scripted.ok("runs", "show", chat.removeprefix("chatcmpl-"), "--json")
        store = scripted.state.store
        until(lambda: len(read_rewards(store).rewards) == 2, "two recorded rewards")
        by_target = read_rewards(store).of_target()
    targets = targets_of(Run.model_validate(json.loads(printed)["run"]))
    reached = [item.value for target in targets for item in by_target.get(target, ())]
    assert reached == [1.0]

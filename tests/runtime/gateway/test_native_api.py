"""`/v1/runs`: programs in any language start, follow, cancel, fork and reward runs."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.runtime.conftest import until
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

QUESTION = {"workflow": "solo", "prompt": "What is 17 * 23?"}


def ended(client: httpx.Client, run_id: str) -> dict[str, Any]:
    """The run, once it has ended."""

    def look() -> dict[str, Any] | None:
        run = client.get(f"/v1/runs/{run_id}").raise_for_status().json()
        return run if run["status"] != "active" else None

    return until(look, f"end of run {run_id}")


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Ids and bodies of server-sent events."""
    blocks = [dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
              for block in text.split("\n\n")]  # fmt: skip
    return [(block["id"], json.loads(block["data"])) for block in blocks if "id" in block]


def test_a_run_can_be_started_and_read_with_its_steps_and_usage(scripted: ScriptedGateway) -> None:
    with scripted.client() as client:
        answer = client.post("/v1/runs", json={**QUESTION, "tags": {"team": "blue"}})
        assert answer.status_code == 202
        run = ended(client, answer.json()["id"])
    assert answer.headers["location"] == f"/v1/runs/{run['id']}"
    assert (run["status"], run["tags"]) == ("answered", {"team": "blue"})
    assert [step["agent"] for step in run["steps"]] == ["solo"]
    assert run["usage"]["total_tokens"] > 0


def test_a_conversation_reaches_the_run_unchanged(scripted: ScriptedGateway) -> None:
    messages = [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "Hello", "name": "ada"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "What is 2 + 2?"},
    ]
    with scripted.client() as client:
        body = {"workflow": "chat", "messages": messages}
        run_id = client.post("/v1/runs", json=body).raise_for_status().json()["id"]
        ended(client, run_id)
    trajectory = json.loads(scripted.ok("runs", "show", run_id, "--json"))
    task = trajectory["run"]["task"]
    assert [message["role"] for message in task["messages"]] == [m["role"] for m in messages]
    assert [message["name"] for message in task["messages"]] == [None, "ada", None, None]
    assert task["prompt"] == "What is 2 + 2?"


def test_events_resume_from_any_id_without_a_gap_or_a_repeat(scripted: ScriptedGateway) -> None:
    with scripted.client() as client:
        run_id = client.post("/v1/runs", json={**QUESTION, "stream": True}).json()["id"]
        whole = events(client.get(f"/v1/runs/{run_id}/events").text)
        assert whole[-1][1]["type"] == "ended"
        for index, (event_id, _) in enumerate(whole):
            after = {"last-event-id": event_id} if index % 2 else {}
            query = {} if index % 2 else {"after": event_id}
            if index == len(whole) - 1:
                break  # nothing follows an end, and a follower waits to be sure of that
            rest = client.get(f"/v1/runs/{run_id}/events", headers=after, params=query).text
            assert events(rest) == whole[index + 1 :]


def test_only_its_caller_can_list_read_and_change_a_run(scripted: ScriptedGateway) -> None:
    other = scripted.new_key("listing")["key"]
    with scripted.client() as client, scripted.client(other) as stranger:
        body = {**QUESTION, "tags": {"batch": "listed"}}
        ids = [client.post("/v1/runs", json=body).json()["id"] for _ in range(3)]
        for run_id in ids:
            ended(client, run_id)
        query = {"tag": "batch=listed", "limit": 2}
        first = client.get("/v1/runs", params=query).json()
        second = client.get("/v1/runs", params={**query, "before": first["last_id"]}).json()
        listed = [run["id"] for run in first["data"] + second["data"]]
        assert listed == list(reversed(ids))
        assert stranger.get("/v1/runs").json()["data"] == []
        for route in ("", "/events"):
            assert stranger.get(f"/v1/runs/{ids[0]}{route}").status_code == 404
        for route in ("/cancel", "/fork", "/feedback"):
            body = {"at_turn": 0} if route == "/fork" else {"value": 1}
            assert stranger.post(f"/v1/runs/{ids[0]}{route}", json=body).status_code == 404


def test_an_idempotency_key_starts_one_run(scripted: ScriptedGateway) -> None:
    headers = {"idempotency-key": "one-run"}
    with scripted.client() as client:
        first = client.post("/v1/runs", json=QUESTION, headers=headers).json()["id"]
        ended(client, first)
        again = client.post("/v1/runs", json=QUESTION, headers=headers)
        assert (again.json()["id"], again.json()["status"]) == (first, "answered")
        other = client.post("/v1/runs", json={**QUESTION, "seed": 1}, headers=headers)
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "idempotency_key_reused"


def test_a_run_can_be_forked_at_a_turn(scripted: ScriptedGateway) -> None:
    with scripted.client() as client:
        parent = client.post("/v1/runs", json=QUESTION).json()["id"]
        ended(client, parent)
        fork = client.post(f"/v1/runs/{parent}/fork", json={"at_turn": 0, "seed": 7})
        assert fork.status_code == 202
        assert ended(client, fork.json()["id"])["parent"] == parent
        late = client.post(f"/v1/runs/{parent}/fork", json={"at_turn": 9})
    assert late.status_code == 400
    assert "turns 0 to 0" in late.json()["error"]["message"]


def test_a_reward_counts_once_for_each_id(scripted: ScriptedGateway) -> None:
    with scripted.client() as client:
        run_id = client.post("/v1/runs", json=QUESTION).json()["id"]
        ended(client, run_id)
        reward = {"value": 0.5, "source": "judge", "id": "r1"}
        answers = [client.post(f"/v1/runs/{run_id}/feedback", json=reward) for _ in range(3)]
        assert [answer.json()["new"] for answer in answers] == [True, False, False]
        other = client.post(f"/v1/runs/{run_id}/feedback", json={**reward, "value": 1})
        assert other.status_code == 400
        assert "'r1'" in other.json()["error"]["message"]


def test_status_counts_rewards_that_are_not_in_the_store_yet(scripted: ScriptedGateway) -> None:
    """A trainer can wait until the count is zero. This deployment has no recorder."""

    def unrecorded() -> int:
        return json.loads(scripted.ok("status", "--json"))["unrecorded"]

    before = unrecorded()
    with scripted.client() as client:
        posted = client.post("/v1/sessions/judged/feedback", json={"value": 1.0})
    assert posted.status_code == 202
    assert unrecorded() == before + 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"workflow": "solo"}, "either 'prompt' or 'messages'"),
        ({"workflow": "nobody", "prompt": "x"}, "nobody"),
        ({**QUESTION, "options": {"no": 1}}, "option 'no'"),
        ({**QUESTION, "policies": {"solo": "none"}}, "none"),
        ({**QUESTION, "budget": {"seconds": -1}}, "budget.seconds"),
        ({**QUESTION, "tags": {"session": "x"}}, "the gateway's own"),
        ({**QUESTION, "colour": "red"}, "'colour'"),
        (
            {
                "workflow": "solo",
                "messages": [{"role": "tool", "tool_call_id": "c1", "content": ""}],
            },
            "messages[0].tool_call_id",
        ),
        ({**QUESTION, "webhook": "ftp://x"}, "webhook"),
        ({**QUESTION, "webhook": "http://127.0.0.1:99999/"}, "no port 99999"),
        ({**QUESTION, "seed": "5"}, "'seed'"),
        ({**QUESTION, "stream": "no"}, "'stream'"),
    ],
)
def test_a_wrong_run_is_refused_by_the_name_of_its_field(
    scripted: ScriptedGateway, body: dict[str, Any], message: str
) -> None:
    with scripted.client() as client:
        answer = client.post("/v1/runs", json=body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_a_filter_by_a_tag_without_a_value_is_refused(scripted: ScriptedGateway) -> None:
    with scripted.client() as client:
        answer = client.get("/v1/runs", params={"tag": "team"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tag"


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("state=active", "state"),
        ("after=x", "after"),
        ("order=asc", "order"),
        ("status=x", "status"),
    ],
)
def test_a_list_of_runs_refuses_a_query_that_it_does_not_know(
    scripted: ScriptedGateway, query: str, param: str
) -> None:
    with scripted.client() as client:
        answer = client.get(f"/v1/runs?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_reward_for_a_session_that_no_call_can_have_is_refused(scripted: ScriptedGateway) -> None:
    with scripted.client() as client:
        answer = client.post("/v1/sessions/%20a/feedback", json={"value": 1})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_session")


def kinds(deployment: ScriptedGateway) -> set[str]:
    """The kinds of all workers, in any state."""
    return {worker["kind"] for worker in deployment.status()["workers"]}


def test_cancelling_a_run_returns_it_as_cancelled(scripted: ScriptedGateway) -> None:
    scripted.ok("scale", "planner=0")
    try:
        until(lambda: "planner" not in kinds(scripted), "end of the planner")
        with scripted.client() as client:
            run_id = client.post("/v1/runs", json=QUESTION).json()["id"]
            run = client.post(f"/v1/runs/{run_id}/cancel").json()
    finally:
        scripted.ok("scale", "planner=1")
    assert (run["status"], run["answer"]) == ("cancelled", None)

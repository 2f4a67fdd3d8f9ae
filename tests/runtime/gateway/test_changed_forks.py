"""`/v1/runs`: forks with other questions and prompts, tools by name, and unknown costs."""

from __future__ import annotations

from typing import Any

import pytest

from loopline.runtime.config.settings import load_resolved_file
from tests.runtime.gateway.scripted_gateway import ScriptedGateway
from tests.runtime.gateway.test_native_api import QUESTION, ended


def test_a_fork_can_change_the_question_and_a_prompt(
    scripted: ScriptedGateway,
) -> None:
    with scripted.client() as client:
        parent = client.post("/v1/runs", json=QUESTION).json()["id"]
        before = ended(client, parent)
        body: dict[str, Any] = {
            "at_turn": 0,
            "question": "What is 6 * 7?",
            "prompts": {"solo.md": "Say nothing but a number."},
        }
        fork = client.post(f"/v1/runs/{parent}/fork", json=body)
        assert fork.status_code == 202, fork.text
        after = ended(client, fork.json()["id"])
    assert (before["answer"], after["answer"]) == ("391", "42")
    record = scripted.ok("runs", "show", after["id"], "--json")
    assert "Say nothing but a number." in record


def test_a_fork_with_a_key_is_made_once(scripted: ScriptedGateway) -> None:
    key = {"idempotency-key": "forked-once"}
    with scripted.client() as client:
        parent = client.post("/v1/runs", json=QUESTION).json()["id"]
        ended(client, parent)
        path = f"/v1/runs/{parent}/fork"
        forks = [client.post(path, json={"at_turn": 0}, headers=key) for _ in range(2)]
        other = client.post(path, json={"at_turn": 0, "seed": 5}, headers=key)
        fork = ended(client, forks[0].json()["id"])
        path = f"/v1/runs/{fork['id']}/fork"
        elsewhere = client.post(path, json={"at_turn": 0}, headers=key)
    assert [fork.status_code for fork in forks] == [202, 202]
    assert len({fork.json()["id"] for fork in forks}) == 1
    assert (other.status_code, elsewhere.status_code) == (409, 409)
    assert fork["parent"] == parent


def test_the_error_about_an_unknown_prompt_lists_the_prompts_of_the_run(
    scripted: ScriptedGateway,
) -> None:
    with scripted.client() as client:
        parent = client.post("/v1/runs", json=QUESTION).json()["id"]
        ended(client, parent)
        body = {"at_turn": 0, "prompts": {"nobody.md": "x"}}
        answer = client.post(f"/v1/runs/{parent}/fork", json=body)
    assert answer.status_code == 400
    assert "its prompts: solo.md" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({**QUESTION, "tools": ["price"]}, "takes none from its caller, as `agent` does"),
        (
            {"workflow": "agent", "prompt": "x", "tools": ["a"], "options": {"tools": ["a"]}},
            "options.tools sets the same",
        ),
        ({"workflow": "agent", "prompt": "x", "tools": ["no_such_tool"]}, "no_such_tool"),
    ],
)
def test_tools_that_a_run_cannot_have_are_refused_by_name(
    scripted: ScriptedGateway, body: dict[str, Any], message: str
) -> None:
    with scripted.client() as client:
        answer = client.post("/v1/runs", json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert message in error["message"]
    if "no_such" not in message:
        assert error["param"] == "tools"


def test_the_tools_of_a_run_become_an_option_of_its_agent(scripted: ScriptedGateway) -> None:
    with scripted.client() as client:
        body = {"workflow": "agent", "prompt": "What is 17 * 23?", "tools": ["calculate"]}
        answer = client.post("/v1/runs", json=body)
        assert answer.status_code == 202, answer.text
        client.post(f"/v1/runs/{answer.json()['id']}/cancel")
    record = scripted.ok("runs", "show", answer.json()["id"], "--json")
    assert '"calculate"' in record


def test_the_cost_of_a_pool_without_a_price_is_null(scripted: ScriptedGateway) -> None:
    with scripted.client() as client:
        costs: dict[str, int | None] = {}
        for pool in ("llm", "slm"):
            body = {**QUESTION, "policies": {"solo": pool}}
            run = ended(client, client.post("/v1/runs", json=body).json()["id"])
            costs[pool] = run["cost_micro_dollars"]
    for pool, cost in costs.items():
        assert (cost is not None) is _has_price(scripted, pool), pool


def _has_price(scripted: ScriptedGateway, pool: str) -> bool:
    return pool in load_resolved_file(scripted.state.resolved).priced_pools

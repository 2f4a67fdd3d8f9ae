"""The options that a request to a workflow's model may set, and their effect on every agent."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.runtime.gateway.conftest import JsonBody, answered, asked
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

SUM = "What is 12 * 7 + 5 * 3?"
PARROT = {"role": "system", "content": "You are a parrot."}


async def samplings(http: httpx.AsyncClient, completion: JsonBody) -> list[tuple[str, Any]]:
    """Agent and sampling of each call behind an answer."""
    run_id = completion["id"].removeprefix("chatcmpl-")
    run = (await http.get(f"runs/{run_id}")).json()
    return [
        (step["agent"], call["sampling"])
        for step in run["steps"]
        for candidate in step["candidates"]
        for call in candidate["calls"]
    ]


async def test_sampling_options_reach_the_only_agent_of_a_team(http: httpx.AsyncClient) -> None:
    body = asked(
        "Count to nine.", model="workflow/solo", temperature=0.25, top_p=0.5, stop=["five"], seed=11
    )
    completion = await answered(http, body)
    ((agent, sampling),) = await samplings(http, completion)
    assert (agent, sampling["temperature"], sampling["top_p"]) == ("solo", 0.25, 0.5)
    assert (sampling["stop"], sampling["seed"]) == (["five"], 11)
    assert completion["choices"][0]["message"]["content"] == "one two three four"


async def test_a_truncated_answer_has_the_finish_reason_length(http: httpx.AsyncClient) -> None:
    body = asked("Count to nine.", model="workflow/agent", max_completion_tokens=10)
    (choice,) = (await answered(http, body))["choices"]
    assert choice["finish_reason"] == "length"
    assert "one two three four five six seven eight nine".startswith(choice["message"]["content"])
    body = asked("Count to nine.", model="workflow/agent")
    assert (await answered(http, body))["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("workflow", ["solo", "agent"])
async def test_instructions_and_history_reach_the_model(
    http: httpx.AsyncClient, workflow: str
) -> None:
    body = asked("Hello?", model=f"workflow/{workflow}")
    body["messages"].insert(0, PARROT)
    assert (await answered(http, body))["choices"][0]["message"]["content"] == "Squawk!"
    body["messages"] = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "What is my name?"},
    ]
    assert (await answered(http, body))["choices"][0]["message"]["content"] == "Your name is Ada."


@pytest.mark.parametrize(
    ("param", "value"),
    [("n", 2), ("logprobs", True), ("parallel_tool_calls", False), ("tool_choice", "none")],
)
async def test_an_option_that_a_team_cannot_honour_is_refused_by_name(
    http: httpx.AsyncClient, param: str, value: object
) -> None:
    body = asked("Hello?", model="workflow/solo", **{param: value})
    response = await http.post("chat/completions", json=body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")
    assert error["type"] == "invalid_request_error"
    assert "workflow 'solo'" in error["message"]


async def test_the_native_api_takes_sampling_options_too(http: httpx.AsyncClient) -> None:
    body: JsonBody = {"workflow": "solo", "prompt": "Count to nine."}
    response = await http.post("runs", json={**body, "generation": {"temperature": 0.75}})
    run_id = response.json()["id"]
    async with http.stream("GET", f"runs/{run_id}/events") as events:
        async for _ in events.aiter_lines():
            pass
    completion = {"id": run_id}
    ((_, sampling),) = await samplings(http, completion)
    assert sampling["temperature"] == 0.75
    response = await http.post(
        "runs", json={"workflow": "pair", "prompt": "?", "generation": {"temperature": 0.75}}
    )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "generation.temperature"


def test_the_temperature_reaches_every_agent_but_length_and_seed_only_the_last(
    scripted: ScriptedGateway,
) -> None:
    with scripted.client() as http:
        body = asked(SUM, model="workflow/delegate", temperature=0.5, max_tokens=200, seed=4)
        completion = http.post("/v1/chat/completions", json=body).json()
        run_id = completion["id"].removeprefix("chatcmpl-")
        steps = http.get(f"/v1/runs/{run_id}").json()["steps"]
    calls = [(s["agent"], c) for s in steps for k in s["candidates"] for c in k["calls"]]
    assert {agent for agent, _ in calls} >= {"planner", "slm"}
    for agent, call in calls:
        sampling = call["sampling"]
        assert sampling["temperature"] == 0.5
        assert (sampling["max_tokens"] == 200) == (agent == "planner")
        assert (sampling["seed"] == 4) == (agent == "planner")


def test_a_cascade_asks_the_big_model_only_if_its_ladder_doubts_the_small_one(
    scripted: ScriptedGateway,
) -> None:
    with scripted.client() as http:
        models = [model["id"] for model in http.get("/v1/models").json()["data"]]
        assert "workflow/cascade" in models
        body = asked(SUM, model="workflow/cascade", max_tokens=200)
        completion = http.post("/v1/chat/completions", json=body).json()
        assert completion["model"] == "workflow/cascade"
        assert completion["choices"][0]["message"]["content"]
        run_id = completion["id"].removeprefix("chatcmpl-")
        steps = http.get(f"/v1/runs/{run_id}").json()["steps"]
        assert [step["agent"] for step in steps] == ["first"]
        doubted: JsonBody = {
            "workflow": "cascade",
            "prompt": SUM,
            "options": {"min_logprob": 0.0},
        }
        run_id = http.post("/v1/runs", json=doubted).json()["id"]
        with http.stream("GET", f"/v1/runs/{run_id}/events") as events:
            for _ in events.iter_lines():
                pass
        steps = http.get(f"/v1/runs/{run_id}").json()["steps"]
        assert [step["agent"] for step in steps] == ["first", "solo"]
        assert "logprob: " in steps[0]["decision"]["data"]["reason"]

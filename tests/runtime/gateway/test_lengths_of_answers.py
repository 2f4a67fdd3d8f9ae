"""What neither a caller nor a pool chooses is left to the endpoint: the length of an answer, and
its temperature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving
from tests.runtime.gateway.test_images import Endpoint, listening
from tests.runtime.gateway.test_requests_to_endpoints import ANSWER

Deployed = tuple[ScriptedGateway, Endpoint]


@pytest.fixture(scope="module")
def recording() -> Iterator[Deployed]:
    """Pools `big`, which leaves all to its endpoint, and `brief`, which has a limit and a
    temperature; `workflow/agent` uses `big`."""
    with listening(ANSWER) as endpoint:
        settings = (
            *(
                f"models.{name}.{setting}"
                for name in ("big", "brief")
                for setting in ("engine=openai", f"model={name}", f"base_url={endpoint.url}")
            ),
            "models.brief.max_tokens=64",
            "models.brief.temperature=0.5",
            "policies.agent=big",
        )
        with serving(*settings) as gateway:
            yield gateway, endpoint


async def sent(
    recording: Deployed, model: str, *, key: str | None = None, **fields: Any
) -> dict[str, Any]:
    """What the endpoint gets for a chat request."""
    gateway, endpoint = recording
    messages = [{"role": "user", "content": "Hi"}]
    async with gateway.http(key) as http:
        body = {"model": model, "messages": messages, **fields}
        answer = await http.post("chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return endpoint.bodies[-1]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_endpoint_is_told_no_limit_that_the_caller_did_not_set(
    recording: Deployed, *, stream: bool
) -> None:
    body = await sent(recording, "big", stream=stream)
    assert not {"max_tokens", "max_completion_tokens"} & body.keys()


async def test_an_endpoint_is_told_no_limit_for_a_response(recording: Deployed) -> None:
    gateway, endpoint = recording
    async with gateway.http() as http:
        answer = await http.post("responses", json={"model": "big", "input": "Hi"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["max_output_tokens"] is None
    assert "max_tokens" not in endpoint.bodies[-1]


async def test_an_agent_s_answer_has_no_limit_and_the_endpoint_s_temperature(
    recording: Deployed,
) -> None:
    body = await sent(recording, "workflow/agent")
    assert not {"max_tokens", "temperature"} & body.keys()


async def test_the_endpoint_s_temperature_is_recorded_as_unknown(recording: Deployed) -> None:
    gateway, endpoint = recording
    messages = [{"role": "user", "content": "Hi"}]
    async with gateway.http() as http:
        answer = await http.post("chat/completions", json={"model": "big", "messages": messages})
        (step,) = (await http.get(f"runs/{answer.headers['x-request-id']}")).json()["steps"]
        response = (await http.post("responses", json={"model": "big", "input": "Hi"})).json()
    assert not any("temperature" in body for body in endpoint.bodies[-2:])
    assert step["candidates"][0]["calls"][0]["sampling"]["endpoint_temperature"] is True
    assert response["temperature"] == 1.0  # OpenAI's default


async def test_the_caller_s_temperature_has_precedence_over_the_pool_s(
    recording: Deployed,
) -> None:
    assert (await sent(recording, "brief"))["temperature"] == 0.5
    assert (await sent(recording, "brief", temperature=0))["temperature"] == 0
    assert (await sent(recording, "big", temperature=0))["temperature"] == 0


async def test_the_caller_s_limit_has_precedence_over_the_pool_s(recording: Deployed) -> None:
    assert (await sent(recording, "brief"))["max_tokens"] == 64
    assert (await sent(recording, "brief", max_tokens=100))["max_tokens"] == 100
    assert (await sent(recording, "big", max_completion_tokens=100))["max_tokens"] == 100


@pytest.mark.parametrize(("tokens", "limit"), [(1_000_000, 4_096), (2_000, 512)])
async def test_a_call_that_a_budget_limits_has_a_limit_that_the_budget_allows(
    recording: Deployed, tokens: int, limit: int
) -> None:
    gateway, _ = recording
    record = gateway.new_key("thrifty", "--tokens-per-day", str(tokens))
    assert (await sent(recording, "big", key=record["key"]))["max_tokens"] == limit


async def test_a_call_that_no_limit_makes_affordable_is_refused(recording: Deployed) -> None:
    gateway, endpoint = recording
    record, calls = gateway.new_key("poor", "--tokens-per-day", "100"), len(endpoint.bodies)
    async with gateway.http(record["key"]) as http:
        body = {"model": "big", "messages": [{"role": "user", "content": "Hi"}]}
        answer = await http.post("chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "insufficient_quota")
    assert len(endpoint.bodies) == calls

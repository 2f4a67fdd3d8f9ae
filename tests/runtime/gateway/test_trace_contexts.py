"""A run whose request has a W3C `traceparent` is part of its client's trace."""

from __future__ import annotations

import httpx
import pytest

from tests.runtime.gateway.conftest import asked
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", asked("What is 2 + 2?")),
        ("/v1/responses", {"model": "llm", "input": "What is 2 + 2?"}),
        ("/v1/runs", {"workflow": "solo", "prompt": "What is 2 + 2?"}),
    ],
)
async def test_a_run_takes_the_trace_context_of_its_request_unless_it_is_invalid(
    gateway: ScriptedGateway, http: httpx.AsyncClient, path: str, body: dict[str, object]
) -> None:
    for header, tag in ((CONTEXT, CONTEXT), ("00-xyz", None)):
        response = await http.post(
            f"{gateway.root}{path}", json=body, headers={"traceparent": header}
        )
        assert response.status_code in (200, 202), response.text
        listed = await http.get(f"{gateway.root}/v1/runs", params={"limit": 1})
        [run] = listed.json()["data"]
        assert run["tags"].get("traceparent") == tag
        assert "traceparent" not in (response.json().get("metadata") or {})


async def test_only_the_header_can_set_the_trace_tag(
    gateway: ScriptedGateway, http: httpx.AsyncClient
) -> None:
    body = {"workflow": "solo", "prompt": "Hi", "tags": {"traceparent": CONTEXT}}
    response = await http.post(f"{gateway.root}/v1/runs", json=body)
    assert response.status_code == 400
    assert "traceparent" in response.json()["error"]["message"]

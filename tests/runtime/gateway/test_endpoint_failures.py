"""The status of a request whose model's endpoint failed until the end, and the id in its error."""

from __future__ import annotations

import socket

import pytest

from loopline.agents.records import Outcome
from loopline.runtime.gateway.errors import outcome_error
from tests.runtime.gateway.conftest import asked
from tests.runtime.gateway.scripted_gateway import serving


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        ("unavailable: llm: no connection", 503, "service_unavailable"),
        ("garbage: llm: not JSON", 502, "bad_upstream_response"),
        ("timeout: llm: no answer", 504, "timeout"),
        ("rate_limited: llm: answered 429", 429, "rate_limit_exceeded"),
        ("ValueError: a defect", 500, "internal_error"),
    ],
)
def test_the_last_failure_of_a_run_that_was_retried_decides_the_status(
    failure: str, status: int, code: str
) -> None:
    error = outcome_error(Outcome.ERROR, f"dead letter: failed attempts: 5; last: {failure}")
    assert (error.status, error.code) == (status, code)
    assert ("retry-after" in error.headers) is (status in (429, 503))
    assert failure in error.message


async def test_an_unreachable_endpoint_is_a_503_whose_request_id_is_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    changes = (
        "models.llm.engine=openai",
        f"models.llm.base_url=http://127.0.0.1:{port}/v1",
        "models.llm.max_attempts=1",
        "bus.max_attempts=1",
    )
    with serving(*changes, kinds=("planner", "gateway")) as gateway:
        async with gateway.http() as http:
            for body in (asked("Hello?"), asked("Hello?", stream=True)):
                response = await http.post("chat/completions", json=body)
                assert response.status_code == 503, response.text
                assert response.json()["error"]["code"] == "service_unavailable"
                newest = (await http.get("runs", params={"limit": 1})).json()["data"][0]
                assert response.headers["x-request-id"] == newest["id"]

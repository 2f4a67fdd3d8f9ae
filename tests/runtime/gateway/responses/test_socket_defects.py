"""A defect of the gateway ends only one response, not its lane or its connection."""

from __future__ import annotations

from typing import Any, cast

from starlette.applications import Starlette
from starlette.testclient import TestClient

from loopline.runtime.gateway.http import Http
from loopline.runtime.gateway.responses_api import ResponsesApi
from loopline.runtime.gateway.responses_socket import ResponsesSocket
from loopline.runtime.gateway.service import Service


class _AnyCaller:
    async def caller(self, connection: object) -> None:
        """Let every caller in."""


class _Defective:
    async def admit(self, *_: object, **__: object) -> None:
        raise KeyError("a defect")


def test_a_lane_answers_the_next_request_after_a_defect_ended_the_previous_one() -> None:
    socket = ResponsesSocket(
        cast(Service, None), cast(Http, _AnyCaller()), cast(ResponsesApi, _Defective())
    )
    with (
        TestClient(Starlette(routes=socket.routes())) as client,
        client.websocket_connect("/v1/responses") as connection,
    ):
        for _ in range(2):
            connection.send_json({"type": "response.create", "stream_id": "a"})
        events: list[dict[str, Any]] = [connection.receive_json() for _ in range(2)]
    assert [event["type"] for event in events] == ["error", "error"]
    assert {event["error"]["code"] for event in events} == {"internal_error"}
    assert {event["stream_id"] for event in events} == {"a"}

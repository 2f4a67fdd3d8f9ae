"""The end of a run is sent to its caller's URL: signed, and at least once."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from standardwebhooks import Webhook

from loopline.runtime.config.sections import GatewaySettings
from loopline.runtime.gateway.errors import ApiError
from loopline.runtime.gateway.webhooks import check_url
from tests.runtime.conftest import until
from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving

QUESTION = {"workflow": "solo", "prompt": "What is 17 * 23?"}


class Receiver(ThreadingHTTPServer):
    """Records deliveries; answers with the next status of a list, then with 204."""

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = statuses
        self.deliveries: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Receiver)
        body = self.rfile.read(int(self.headers["content-length"]))
        server.deliveries.append((dict(self.headers), body))
        self.send_response(server.statuses.pop(0) if server.statuses else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def receiver(*statuses: int) -> Generator[Receiver]:
    server = Receiver(list(statuses))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def test_the_end_of_a_run_is_signed_with_the_secret_of_the_key(scripted: ScriptedGateway) -> None:
    record = scripted.new_key("hooked")
    with receiver() as hook, scripted.client(record["key"]) as client:
        body = {**QUESTION, "webhook": hook.url}
        run_id = client.post("/v1/runs", json=body).raise_for_status().json()["id"]
        until(lambda: hook.deliveries, "delivery")
    headers, sent = hook.deliveries[0]
    event = Webhook(record["webhook_secret"]).verify(sent, headers)
    assert (event["type"], event["data"]["id"]) == ("run.ended", run_id)
    assert event["data"]["status"] == "answered"


def test_a_refused_delivery_is_retried_with_the_same_id(scripted: ScriptedGateway) -> None:
    with receiver(500) as hook, scripted.client() as client:
        body = {**QUESTION, "webhook": hook.url}
        run_id = client.post("/v1/runs", json=body).raise_for_status().json()["id"]
        until(lambda: len(hook.deliveries) > 1, "second delivery")
    ids = {
        {name.lower(): value for name, value in headers.items()}["webhook-id"]
        for headers, _ in hook.deliveries
    }
    assert ids == {run_id}


def test_killing_a_gateway_loses_no_delivery() -> None:
    with serving() as scripted, receiver() as hook, scripted.client() as client:
        scripted.ok("scale", "planner=0")
        body = {**QUESTION, "webhook": hook.url}
        run_id = client.post("/v1/runs", json=body).raise_for_status().json()["id"]
        for worker in scripted.workers("gateway"):
            os.kill(worker["pid"], signal.SIGKILL)
        scripted.ok("scale", "planner=1")
        until(lambda: hook.deliveries, "delivery")
    assert json.loads(hook.deliveries[0][1])["data"]["id"] == run_id


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "http://10.0.0.1/", "http://[::1]/"])
async def test_a_gateway_on_a_public_address_sends_no_webhooks_to_private_ones(url: str) -> None:
    with pytest.raises(ApiError, match="private network"):
        await check_url(url, GatewaySettings(host="0.0.0.0"))
    await check_url(url, GatewaySettings())

"""Runs that wait, as their callers see them: over HTTP, in the terminal, on the live page."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from tests.docs.fences import ROOT
from tests.runtime.conftest import changes, until
from tests.runtime.gateway.scripted_gateway import KINDS, ScriptedGateway
from tests.runtime.gateway.test_webhooks import receiver

APP = ROOT / "examples/refund_app.py"
CALL = '<tool_call>\n{"name": "refund", "arguments": {"order": "A7", "euros": %d}}\n</tool_call>'
ANSWERS = [
    {"where": ["a person has refused refund"], "says": ["I may not."]},
    {"where": ["refunded 500"], "says": ["You get 500 euros."]},
    {"where": ["refunded 20"], "says": ["You get 20 euros."]},
    {"where": ["Refund 500"], "says": [CALL % 500]},
    {"where": ["Refund a lot"], "says": [CALL % 10**25]},
    {"where": ["Refund 20"], "says": [CALL % 20]},
]
ASKED = {"workflow": "support", "prompt": "Refund 500 euros for A7."}


@pytest.fixture(scope="module")
def shop() -> Iterator[ScriptedGateway]:
    """A deployment of the example, whose model answers from a script."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        deployment = ScriptedGateway(Path(folder))
        scripted = json.dumps({"answers": ANSWERS})
        words = changes(
            KINDS,
            f"models.slm.scripted={scripted}",
            "gateway.port=0",
            "workers.gateway.count=1",
        )
        try:
            deployment.ok("up", "--detach", "--profile", "scripted", "--app", str(APP), *words)
            yield deployment
        finally:
            deployment.end()


@pytest.fixture
def http(shop: ScriptedGateway) -> Iterator[httpx.Client]:
    with shop.client() as client:
        yield client


def begin(http: httpx.Client, **fields: Any) -> str:
    answer = http.post("/v1/runs", json={**ASKED, **fields})
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def pending(http: httpx.Client, run_id: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        data = http.get("/v1/approvals").raise_for_status().json()["data"]
        return next((item for item in data if item["run"] == run_id), None)

    return until(found, "an approval")


def ended(http: httpx.Client, run_id: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        body = http.get(f"/v1/runs/{run_id}").raise_for_status().json()
        return body if body["ended"] else None

    return until(over, "end")


def test_a_call_is_approved_over_http_and_announced_by_a_signed_webhook(
    shop: ScriptedGateway,
) -> None:
    record = shop.new_key("shop", "--approves")
    with receiver() as hook, shop.client(record["key"]) as client:
        run_id = begin(client, webhook=hook.url)
        approval = pending(client, run_id)
        assert approval["arguments"] == {"order": "A7", "euros": 500}
        body = client.get(f"/v1/runs/{run_id}").json()
        assert (body["status"], body["waits"][0]["kind"]) == ("waiting", "approval")
        until(lambda: hook.deliveries, "announcement")
        event = Webhook(record["webhook_secret"]).verify(
            hook.deliveries[0][1], hook.deliveries[0][0]
        )
        assert (event["type"], event["data"]["id"]) == ("approval.needed", approval["id"])
        place = f"/v1/approvals/{approval['id']}"
        changed = client.post(place, json={"decision": "approve", "digest": "0" * 64})
        assert (changed.status_code, changed.json()["error"]["code"]) == (409, "approval_conflict")
        decision = {"decision": "approve", "digest": approval["digest"]}
        assert client.post(place, json=decision).status_code == 200
        assert client.post(place, json=decision).status_code == 404
        end = ended(client, run_id)
        assert end["answer"] == "You get 500 euros."
        [decided] = end["steps"][0]["approvals"]
        assert decided["by"].startswith("shop (")


def test_approvers_see_a_number_of_any_length_that_a_model_wrote(
    shop: ScriptedGateway, http: httpx.Client
) -> None:
    with receiver() as hook:
        run_id = begin(http, prompt="Refund a lot for A7.", webhook=hook.url)
        assert pending(http, run_id)["arguments"]["euros"] == 10**25
        until(lambda: hook.deliveries, "announcement")
        assert json.loads(hook.deliveries[0][1])["data"]["arguments"]["euros"] == 10**25
    assert http.post(f"/v1/runs/{run_id}/cancel").status_code == 200


def test_a_key_without_the_right_can_neither_list_nor_approve_calls(shop: ScriptedGateway) -> None:
    with shop.client(shop.new_key("nobody")["key"]) as client:
        assert client.get("/v1/approvals").status_code == 403
        refused = client.post("/v1/approvals/x", json={"decision": "approve", "digest": "0" * 64})
        assert refused.json()["error"]["code"] == "approval_not_allowed"


def test_a_call_is_denied_in_the_terminal(shop: ScriptedGateway, http: httpx.Client) -> None:
    run_id = begin(http)
    approval = pending(http, run_id)
    assert approval["id"] in shop.ok("approvals", "ls")
    assert "approval until" in shop.ok("runs", "ls", "--waiting", "--limit", "200")
    assert "waits for approval of refund" in shop.ok("runs", "show", run_id)
    assert shop.status()["waits"] >= 1
    wrong = shop.run("approvals", "approve", approval["id"], "--digest", "0" * 12)
    assert wrong.returncode != 0
    assert "waits with the digest" in wrong.stderr
    output = shop.ok("approvals", "deny", approval["id"], "--reason", "too much")
    assert output == 'denied: refund {"order": "A7", "euros": 500}\n'
    assert ended(http, run_id)["answer"] == "I may not."
    assert re.search("refund: denied by .*: too much", shop.ok("runs", "show", run_id))
    gone = shop.run("approvals", "approve", approval["id"])
    assert re.search("no request .* waits for approval", gone.stderr)


def test_the_live_page_offers_an_approval_only_to_keys_that_may_write(
    shop: ScriptedGateway, http: httpx.Client
) -> None:
    run_id = begin(http)
    approval = pending(http, run_id)
    reader = shop.new_key("reader", "--dashboard", "read")["key"]
    with httpx.Client(base_url=f"{shop.root}/dashboard", timeout=60) as client:
        client.post("/sign-in", data={"key": reader})
        assert approval["digest"] not in client.get("/approvals").text
    with httpx.Client(base_url=f"{shop.root}/dashboard", timeout=60) as client:
        client.get(shop.ok("dashboard").strip())
        page = client.get("/approvals").text
        assert "&#34;euros&#34;: 500" in page
        token = re.findall(r'name="form_token" value="([^"]+)"', page)[0]
        form = {"id": approval["id"], "digest": approval["digest"], "decision": "approve"}
        assert client.post("/approvals/decide", data=form).status_code == 403
        old = {**form, "digest": "0" * 64, "form_token": token}
        assert client.post("/approvals/decide", data=old).status_code == 400
        assert "Waits for approval of refund" in client.get(f"/runs/{run_id}").text
        assert (
            client.post("/approvals/decide", data={**form, "form_token": token}).status_code == 303
        )
    assert ended(http, run_id)["answer"] == "You get 500 euros."


def test_a_run_can_start_later_and_accepts_signals_meanwhile(
    shop: ScriptedGateway, http: httpx.Client
) -> None:
    run_id = begin(http, prompt="Refund 20 euros.", start_after=3_600)
    assert http.get(f"/v1/runs/{run_id}").json()["waits"][0]["kind"] == "timer"
    place = f"/v1/runs/{run_id}/signals/paid"
    for status in ("kept", "already"):
        sent = http.post(place, json={"value": {"euros": 20}, "id": "receipt-1"})
        assert (sent.status_code, sent.json()["status"]) == (202, status)
    assert http.post(f"/v1/runs/{run_id}/signals/no space", json={}).status_code == 400
    with shop.client(shop.new_key("another")["key"]) as other:
        assert other.post(place, json={}).status_code == 404
    assert "it does not wait for the signal yet" in shop.ok("runs", "signal", run_id, "ready")
    assert "is not JSON" in shop.run("runs", "signal", run_id, "ready", "--value", "yes").stderr
    shop.ok("runs", "cancel", run_id)
    assert http.post(place, json={}).status_code == 409
    soon = shop.ok("ask", "--after", "1s", "--workflow", "support", "Refund 20 euros.").strip()
    # It is the terminal's own run, without a key.
    show = until(
        lambda: "still running" not in (text := shop.ok("runs", "show", soon)) and text, "answer"
    )
    assert "You get 20 euros." in show
    assert "not a duration of at most a year" in shop.run("ask", "--after", "soon", "x").stderr


def test_a_schedule_starts_runs_by_the_clock(shop: ScriptedGateway) -> None:
    added = shop.ok(
        "schedule", "add", "often", "Refund 20 euros.", "--cron", "* * * * * *",
        "--workflow", "support",
    )  # fmt: skip
    assert "schedule often: next at" in added
    again = shop.run("schedule", "add", "often", "x", "--cron", "0 7 * * *")
    assert "a schedule 'often' already exists" in again.stderr
    assert (
        "is not a cron schedule"
        in shop.run("schedule", "add", "never", "x", "--cron", "never").stderr
    )
    assert (
        "no time zone"
        in shop.run(
            "schedule", "add", "n", "x", "--cron", "0 7 * * *", "--timezone", "Mars/Base"
        ).stderr
    )

    def ran(name: str) -> list[dict[str, Any]]:
        lines = json.loads(shop.ok("runs", "ls", "--json", "--limit", "200"))
        return [line for line in lines if line["tags"].get("schedule") == name]

    until(lambda: any(line["state"] == "answered" for line in ran("often")), "answer of a tick")
    poor = ("--budget-tokens", "1", "--workflow", "support")
    shop.ok("schedule", "add", "poor", "Refund 20 euros.", "--cron", "* * * * * *", *poor)
    until(lambda: any(line["state"] == "budget" for line in ran("poor")), "end of a tick")
    shop.ok("schedule", "rm", "poor")
    assert "often" in shop.ok("schedule", "ls")
    shop.ok("schedule", "rm", "often")
    ticks = [line["tags"]["tick"] for line in ran("often")]
    assert len(ticks) == len(set(ticks)), "one run for each tick"
    assert shop.ok("schedule", "ls") == "no schedules\n"
    assert "there is no schedule 'often'" in shop.run("schedule", "rm", "often").stderr

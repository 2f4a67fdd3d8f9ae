"""Approvals, conversations, costs and queues, where a reader looks for them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from loopline.runtime.dashboard.runs_view import dollars_of
from loopline.runtime.observe.run_index import RunLine
from tests.runtime.dashboard.conftest import Dashboard


def test_an_approval_is_decided_on_the_page_of_its_run(page: Page, dashboard: Dashboard) -> None:
    run_id = dashboard.hold_back("Pay 700.")
    page.goto(f"{dashboard.url}/runs/{run_id}")
    panel = page.locator("section", has_text="cashier: pay")
    expect(panel).to_contain_text('"euros": 500')
    panel.get_by_label("Reason").fill("too much")
    panel.get_by_role("button", name="Deny").click()
    expect(page).to_have_url(re.compile(run_id))
    expect(page.get_by_role("button", name="Deny")).to_have_count(0)


def test_a_run_is_found_by_its_system_message_and_shows_the_conversation(
    page: Page, dashboard: Dashboard
) -> None:
    messages = [
        {"role": "system", "content": "You keep a greenhouse of oranges."},
        {"role": "user", "content": "Name a colour."},
    ]
    with dashboard.deployment.client() as client:
        answer = client.post("/v1/chat/completions", json={"model": "llm", "messages": messages})
        run_id = answer.headers["x-loopline-run"]
    page.goto(f"{dashboard.url}/runs?words=GREENHOUSE+of")
    page.locator(f"#to-{run_id}").click()
    page.get_by_text("the conversation, 2 messages").click()
    expect(page.locator(".message.system")).to_contain_text("greenhouse of oranges")


def test_the_page_of_workers_shows_how_long_the_oldest_message_waits(
    page: Page, dashboard: Dashboard
) -> None:
    page.goto(f"{dashboard.url}/workers")
    queues = page.get_by_role("region", name="Queues")
    expect(queues).to_contain_text("Oldest waits")


@pytest.mark.parametrize(
    ("policies", "tokens", "micro", "words"),
    [
        (("llm",), 0, 0, ""),
        (("llm", "slm/caller@3"), 9, 1_500, "$0.0015"),
        (("free",), 9, 0, "$0.0000"),
        (("llm", "mine"), 9, 1_500, "$0.0015 + unknown"),
        (("mine",), 9, 0, "unknown"),
        ((), 9, 0, "unknown"),
    ],
)
def test_a_cost_without_a_price_is_shown_as_unknown(
    policies: tuple[str, ...], tokens: int, micro: int, words: str
) -> None:
    line = RunLine(
        "r", "answered", "solo", 10.0, 11.0, tokens, micro, "", "", "q", "", None, {},
        policies=policies,
    )  # fmt: skip
    assert dollars_of(line, {"llm", "slm", "free"}) == words

"""Processes, conversations, approvals and costs on the page of a run."""

from __future__ import annotations

from loopline.agents.records import (
    Approval,
    Candidate,
    Message,
    RequestTiming,
    StepTimings,
    ToolCall,
)
from loopline.runtime.observe.run_page.overview import MAX_ROWS
from loopline.runtime.observe.run_page.page import render, render_body
from tests.agents.conversations import a_run, says
from tests.runtime.parsed_page import ParsedPage
from tests.runtime.test_run_page import EVIL, a_step, ended


def test_requests_to_other_processes_have_their_own_bars() -> None:
    call = says("7").model_copy(update={"worker": "gpu-1"})
    requests = (
        RequestTiming(number=0, kind="completion", name=call.policy.name, started=1.0, ended=1.5),
        RequestTiming(number=1, kind="tool", name="price", started=1.5, ended=1.6, error="timeout"),
    )
    timings = StepTimings(started=1_000.0, ended=1_001.0, requests=requests)
    page = render(ended(a_step(Candidate(calls=(call,)), timings=timings)))
    ParsedPage(page).require_harmless()
    assert f"0 solo: {call.policy.name} in gpu-1, 500 ms" in page
    assert "0 solo: price in a tool worker, 100 ms, timeout" in page
    assert "0 solo on worker: models" in page or "0 solo on worker: tools" in page
    assert "Thin bars are requests to gpu and tool workers." in page


def test_rows_of_many_requests_are_bounded_and_the_page_says_how_many_steps_are_drawn() -> None:
    requests = tuple(
        RequestTiming(number=at, kind="tool", name="t", started=1.0, ended=1.1) for at in range(30)
    )
    timings = StepTimings(started=1_000.0, ended=1_001.0, requests=requests)
    steps = [a_step(Candidate(calls=(says("7"),)), turn=at, timings=timings) for at in range(20)]
    page = render(ended(*steps))
    assert f"The first {-(-MAX_ROWS // 13)} of 20 steps are drawn." in page


def test_retries_and_takeovers_are_shown() -> None:
    timings = StepTimings(started=1_000.0, ended=1_001.0, retries=2, deliveries=3)
    page = render(ended(a_step(Candidate(calls=(says("7"),)), timings=timings)))
    assert "retried 2 times" in page
    assert "taken over, 3 deliveries" in page
    quiet = render(ended(a_step(Candidate(calls=(says("7"),)))))
    assert "taken over" not in quiet
    assert "retried" not in quiet


def test_an_approval_shows_who_decided_it() -> None:
    approval = Approval(
        request="call_1", name="pay", digest="d", decision="denied", at=0.0, by=EVIL, reason="no"
    )
    page = render(ended(a_step(Candidate(calls=(says("7"),)), approvals=(approval,))))
    parsed = ParsedPage(page)
    parsed.require_harmless()
    assert "pay denied by" in parsed.text
    assert "1970-01-01 00:00 UTC: no" in parsed.text


def test_a_conversation_is_shown_as_it_was_written() -> None:
    run = a_run("solo")
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content=EVIL, name="ada"),
        Message(
            role="assistant", tool_calls=(ToolCall(id="c", name="price", arguments={"sku": "A7"}),)
        ),
        Message(role="tool", content="12.5", tool_call_id="c"),
        Message(role="user", content="And now?"),
    )
    run = run.model_copy(update={"task": run.task.model_copy(update={"messages": messages})})
    page = render(ended(a_step(Candidate(calls=(says("7"),))), run=run))
    parsed = ParsedPage(page)
    parsed.require_harmless()
    assert len(parsed.of("div", "message")) == 5
    for words in ("Be brief.", "user ada", EVIL, "price", '"sku": "A7"', "12.5", "5 messages"):
        assert words in parsed.text
    alone = ParsedPage(render(ended(a_step(Candidate(calls=(says("7"),))))))
    assert alone.of("div", "message") == []


def test_a_cost_is_shown_if_its_pool_has_a_price_and_as_unknown_otherwise() -> None:
    paid = says("7").model_copy(update={"cost_micro_dollars": 1_500})
    free = says("8")
    known_run = ended(a_step(Candidate(calls=(paid, free))))
    pool = paid.policy.name
    assert "$0.001500" in str(render_body(known_run, priced=[pool]))
    assert "unknown" in str(render_body(known_run, priced=[]))
    nothing = ended(a_step(Candidate(calls=(free,))))
    assert "$0.000000" in str(render_body(nothing, priced=[pool])), "a price of 0 is a price"
    assert "unknown" in str(render_body(nothing, priced=["another"]))

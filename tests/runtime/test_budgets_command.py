"""`runtime budgets`, and the limits of `runtime ask`."""

from __future__ import annotations

import json

from loopline.runtime.errors import EXIT_FAILED, EXIT_USAGE
from tests.runtime.conftest import Deployment


def test_a_limit_can_be_set_listed_and_removed(shared: Deployment) -> None:
    assert "no limits" in shared.ok("budgets", "ls")
    shared.ok("budgets", "set", "tenant:acme", "--usd", "2.50", "--seconds", "90")
    listed = shared.ok("budgets", "ls")
    assert "tenant:acme" in listed
    assert "$2.5" in listed
    [state] = json.loads(shared.ok("budgets", "ls", "--json"))
    assert state["micro_dollars"] == {"limit": 2_500_000, "spent": 0, "reserved": 0}
    assert state["milliseconds"]["limit"] == 90_000
    shared.ok("budgets", "set", "tenant:acme", "--none")
    assert "no limits" in shared.ok("budgets", "ls")


def test_an_invalid_scope_or_limit_is_refused(shared: Deployment) -> None:
    for arguments in (("all", "--tokens", "1"), ("day",), ("day", "--none", "--tokens", "1")):
        process = shared.run("budgets", "set", *arguments)
        assert process.returncode == EXIT_USAGE, arguments


def test_a_question_that_exceeds_its_budget_is_not_asked(shared: Deployment) -> None:
    process = shared.run("ask", "What is 17 * 23?", "--budget-tokens", "10", "--json")
    assert process.returncode == EXIT_FAILED
    trajectory = json.loads(process.stdout)
    assert trajectory["outcome"] == "budget"
    assert "a limit of 10 tokens: 0 tokens spent" in trajectory["reason"]


def test_the_daily_budget_counts_every_run_and_reservations_are_settled(
    shared: Deployment,
) -> None:
    shared.ok("budgets", "set", "day", "--tokens", "200000")
    try:
        trajectory = json.loads(shared.ok("ask", "What is 17 * 23?", "--json"))
        calls = [
            call["usage"]
            for step in trajectory["steps"]
            for candidate in step["candidates"]
            for call in candidate["calls"]
        ]
        [state] = json.loads(shared.ok("budgets", "ls", "--json"))
        used = sum(usage["prompt"] + usage["completion"] for usage in calls)
        assert state["tokens"] == {"limit": 200_000, "spent": used, "reserved": 0}
    finally:
        shared.ok("budgets", "set", "day", "--none")

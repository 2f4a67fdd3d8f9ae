"""`runtime runs fork` with another question."""

from __future__ import annotations

import json

from loopline.runtime.errors import EXIT_USAGE
from tests.runtime.conftest import Deployment
from tests.runtime.test_commands import one_error


def test_a_fork_can_ask_another_question(shared: Deployment) -> None:
    first = json.loads(shared.ok("ask", "What is 17 * 23?", "--json"))
    run_id, question = first["run"]["id"], "What is 6 * 7?"
    forked = json.loads(shared.ok("runs", "fork", run_id, "--question", question, "--json"))
    assert forked["run"]["task"]["prompt"] == question
    assert "42" in forked["answer"]
    process = shared.run("runs", "fork", run_id, "--at", "1", "--question", question)
    assert process.returncode == EXIT_USAGE
    assert "a fork at turn 0" in one_error(process) or "turns 0 to" in one_error(process)

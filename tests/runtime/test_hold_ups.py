"""What `runtime ask` says while nothing answers, and what the run says at its end."""

from __future__ import annotations

import signal
import socket

import pytest

from runtime.errors import EXIT_FAILED
from tests.runtime.conftest import ASKED, LIMIT, Deployment, changes

pytestmark = pytest.mark.timeout(300)

QUESTION = "What is 6 * 7?"


def test_an_endpoint_that_is_away_is_named_while_ask_waits_and_in_the_reason_of_the_end(
    deployment: Deployment,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    pools = [
        assignment
        for pool in ("llm", "slm")
        for assignment in (
            f"models.{pool}.base_url=http://127.0.0.1:{port}/v1",
            f"models.{pool}.max_attempts=1",
        )
    ]
    deployment.up("bus.max_attempts=100", *pools, profile="endpoint", kinds=ASKED)
    done = deployment.run("ask", QUESTION, "--seconds", "6")
    assert done.returncode == EXIT_FAILED
    refused = f"unavailable: llm: llm at 127.0.0.1:{port}: no connection"
    assert done.stderr.count(f"a step failed and is tried again: {refused}") == 1
    assert f"its deadline passed; last error: {refused}" in done.stdout


def test_a_gpu_worker_that_was_given_up_is_named_while_ask_waits(deployment: Deployment) -> None:
    words = changes(ASKED)
    missing = "models.llm.api_key_env=NOBODY_SETS_THIS"
    assert deployment.run("up", "-d", "-p", "endpoint", *words, "--set", missing).returncode == 1
    asking = deployment.start("ask", QUESTION)
    assert asking.stdout is not None
    said = [asking.stdout.readline(), asking.stdout.readline()]
    asking.send_signal(signal.SIGINT)
    asking.communicate(timeout=LIMIT)
    assert "no worker serves the pool llm, the pool slm right now" in said[0]
    assert said[1].startswith("gpu-1.")
    assert "is broken: exit code 78" in said[1]
    assert "NOBODY_SETS_THIS is not set; put the endpoint's API key into it" in said[1]

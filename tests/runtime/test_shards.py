"""Changes to the shards of a running deployment, and workers with settings of their own."""

from __future__ import annotations

import httpx
import pytest

from loopline.runtime.errors import EXIT_CONFIG, EXIT_FAILED
from tests.runtime.conftest import ASKED, Deployment, until
from tests.runtime.gateway.scripted_gateway import serving

pytestmark = pytest.mark.timeout(300)

QUESTION = "Tom has 3 boxes of 12 apples and gives away 7. How many are left?"


def test_the_shards_of_a_running_deployment_can_be_changed_and_its_workers_rejoin(
    deployment: Deployment,
) -> None:
    deployment.up(kinds=(*ASKED, "recorder"))
    assert deployment.ask(QUESTION)["answer"] == "29"
    assert "shards: 1 → 3" in deployment.ok("shards", "3")
    assert deployment.ask(QUESTION)["answer"] == "29"
    again = deployment.run("worker", "slm", "--set", "bus.shards=1")
    assert again.returncode == EXIT_CONFIG, again.stderr
    assert "bus.shards is 3" in again.stderr
    assert "this process sets 1" in again.stderr
    early = deployment.run("worker", "slm", "--set", "bus.lease_seconds=0.3")
    assert early.returncode == EXIT_CONFIG, early.stderr
    assert "bus.lease_seconds is 1.0" in early.stderr
    client = deployment.run("runs", "ls", env={"LOOPLINE_BUS__SHARDS": "4"})
    assert client.returncode == EXIT_CONFIG, client.stderr
    assert "bus.shards is 3" in client.stderr


def test_a_key_still_leads_to_its_run_after_the_shards_change() -> None:
    bodies = {f"question-{number}": f"What is {number} + 1?" for number in range(4)}
    with serving(kinds=("planner", "gpu", "recorder", "gateway")) as gateway:

        def ask(key: str) -> str:
            message = {"role": "user", "content": bodies[key]}
            body = {"model": "llm", "messages": [message]}
            runs: list[str] = []

            def is_answered() -> bool:
                with gateway.client() as client:
                    try:
                        answer = client.post(
                            "/v1/chat/completions", json=body, headers={"idempotency-key": key}
                        )
                    except httpx.TransportError:  # the gateway restarts
                        return False
                assert answer.status_code in (200, 503), answer.text
                runs.append(answer.headers["x-loopline-run"] if answer.is_success else "")
                return answer.is_success

            until(is_answered, "the gateway has rejoined and answers")
            return runs[-1]

        first = {key: ask(key) for key in bodies}
        assert "shards: 1 → 3" in gateway.ok("shards", "3")
        until(lambda: gateway.status()["phase"] == "ready", "the workers have rejoined")
        assert {key: ask(key) for key in bodies} == first
        with gateway.client() as client:
            assert client.get(f"/v1/runs/{first['question-0']}").status_code == 200


def test_shards_cannot_be_changed_while_a_run_is_in_flight(deployment: Deployment) -> None:
    deployment.up(kinds=())
    asking = deployment.start("ask", QUESTION)
    until(lambda: deployment.status()["runs_in_flight"] == 1, "run in flight")
    refused = deployment.run("shards", "3", "--wait", "0.5")
    assert refused.returncode == EXIT_FAILED
    assert "the number of shards stays 1" in refused.stderr
    assert "1 runs in flight" in refused.stderr
    asking.kill()
    deployment.ok("down")
    restarted = deployment.run("up", "--detach", "--profile", "scripted", "--set", "bus.shards=4")
    assert restarted.returncode != 0
    assert "bus.shards is 1" in restarted.stderr
    assert "1 runs in flight" in restarted.stderr

"""A smaller version of `bench gateway-fuzz --requests 1000000`, and what it says of applications
that are not as they should be."""

from __future__ import annotations

import asyncio
import random

import orjson
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from loopline.bench.proofs.gateway_fuzz import targets
from loopline.bench.proofs.gateway_fuzz.mutation import Mutator
from loopline.bench.proofs.gateway_fuzz.proof import Counts, GatewayFuzzOptions, run
from loopline.bench.proofs.gateway_fuzz.requests import FuzzRequest, Requests
from loopline.bench.proofs.harness import Progress

ASKED = FuzzRequest("GET", "/v1/runs/x", [], b"", 0, foreign="x")


def answering(status: int) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


async def raising(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("broken")


async def silent(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("app", "rule"),
    [(answering(500), "errors"), (raising, "errors"), (silent, "hangs"), (answering(200), "leaks")],
)
async def test_what_an_application_does_wrong_is_a_violation(
    app: ASGIApp, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "LIMIT_SECONDS", 0.05)
    counts = Counts()
    answer = await targets.InProcess(app, random.Random(1), leaving=0).send(ASKED)
    counts.add("application", ASKED, answer)
    assert [violation.rule for violation in counts.violations] == [rule]


async def test_a_refusal_is_no_violation() -> None:
    counts = Counts()
    answer = await targets.InProcess(answering(404), random.Random(1)).send(ASKED)
    counts.add("application", ASKED, answer)
    assert counts.violations == []


def test_one_seed_is_one_sequence_of_requests() -> None:
    first, second = (Requests(random.Random(5), ["a", "b"]) for _ in range(2))
    requests = [first.next() for _ in range(300)]
    assert requests == [second.next() for _ in range(300)]
    assert len({request.method for request in requests}) > 2
    assert len({request.path for request in requests}) > 30


def test_bodies_are_changed_and_some_are_no_json() -> None:
    mutator, value = Mutator(random.Random(2)), {"model": "llm", "messages": [{"role": "user"}]}
    bodies = {mutator.body(orjson.loads(orjson.dumps(value))) for _ in range(300)}
    assert len(bodies) > 150
    readable = 0
    for body in bodies:
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError:
            continue
        readable += 1
    assert 0.3 * len(bodies) < readable < len(bodies)


@pytest.mark.slow
def test_a_thousand_hostile_requests_fail_nowhere() -> None:
    outcome = run(GatewayFuzzOptions(requests=1_000, seed=11), Progress())
    assert outcome.broken == {}
    answers = sum(m.value for m in outcome.measurements if m.name == "answers")
    assert answers == 1_000
    assert {m.subject for m in outcome.measurements if m.group == "application"} >= {"200", "400"}

"""A smaller version of `bench gateway-fuzz --requests 1000000`, and its verdicts on faulty
applications."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import orjson
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from loopline.bench.errors import UsageError
from loopline.bench.proofs.gateway_fuzz import targets
from loopline.bench.proofs.gateway_fuzz.counts import Checkpoint, Counts, read_checkpoint
from loopline.bench.proofs.gateway_fuzz.mutation import Mutator
from loopline.bench.proofs.gateway_fuzz.proof import GatewayFuzzOptions, run
from loopline.bench.proofs.gateway_fuzz.requests import FuzzRequest, Requests
from loopline.bench.proofs.gateway_fuzz.targets import Answer
from loopline.bench.proofs.harness import Progress
from loopline.trainers.core.json_records import write_record

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
async def test_an_application_s_misbehaviour_is_a_violation(
    app: ASGIApp, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "LIMIT_SECONDS", 0.05)
    counts = Counts()
    answer = await targets.InProcess(app, random.Random(1), leaving=0).send(ASKED)
    counts.add("application", ASKED, answer)
    assert [violation.rule for violation in counts.violations] == [rule]


async def test_a_refusal_is_not_a_violation() -> None:
    counts = Counts()
    answer = await targets.InProcess(answering(404), random.Random(1)).send(ASKED)
    counts.add("application", ASKED, answer)
    assert counts.violations == []


def test_the_sequence_of_requests_follows_from_the_seed() -> None:
    first, second = (Requests(random.Random(5), ["a", "b"]) for _ in range(2))
    requests = [first.next() for _ in range(300)]
    assert requests == [second.next() for _ in range(300)]
    assert len({request.method for request in requests}) > 2
    assert len({request.path for request in requests}) > 30


def test_bodies_are_mutated_and_some_are_not_json() -> None:
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


def test_a_checkpoint_keeps_all_counts(tmp_path: Path) -> None:
    counts = Counts(seconds=2.0)
    counts.add("socket", ASKED, Answer(200, 0.5))
    counts.add("application", ASKED, Answer(404, 0.1))
    counts.grew({"gateway": 5})
    counts.grew({"gateway": 3})
    assert read_checkpoint(tmp_path / "fuzz.json", 7) is None
    write_record(tmp_path / "fuzz.json", Checkpoint.of(7, counts))
    for seed in (7, None):
        saved = read_checkpoint(tmp_path / "fuzz.json", seed)
        assert saved is not None
        assert saved.counts == counts
    assert counts.grown == {"gateway": 5}


def test_a_checkpoint_of_another_seed_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.json"
    write_record(path, Checkpoint.of(7, Counts()))
    with pytest.raises(UsageError, match="has --seed 7"):
        read_checkpoint(path, 8)
    path.write_text("{")
    with pytest.raises(UsageError, match="remove it to start again"):
        read_checkpoint(path, 7)


def test_a_resumed_run_does_not_repeat_requests(tmp_path: Path) -> None:
    path, counts = tmp_path / "fuzz.json", Counts(sent=1_000, seconds=1.0, grown={"gateway": 0})
    counts.statuses["application"] = Counter({200: 1_000})
    write_record(path, Checkpoint.of(7, counts))
    outcome = run(GatewayFuzzOptions(requests=1_000, checkpoint=path), Progress())
    answers = {m.subject: m.value for m in outcome.measurements if m.name == "answers"}
    assert answers == {"200": 1_000}


@pytest.mark.slow
def test_a_thousand_hostile_requests_cause_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.json"
    outcome = run(GatewayFuzzOptions(requests=1_000, seed=11, checkpoint=path), Progress())
    assert outcome.broken == {}
    answers = sum(m.value for m in outcome.measurements if m.name == "answers")
    assert answers == 1_000
    assert {m.subject for m in outcome.measurements if m.group == "application"} >= {"200", "400"}
    saved = read_checkpoint(path, 11)
    assert saved is not None
    assert saved.sent == 1_000

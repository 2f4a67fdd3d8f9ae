"""The span of an HTTP request is between its client's span and its run's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.proto", reason="needs make install")

from loopline.bus import TraceContext, span_id_of, trace_id_of
from tests.runtime.conftest import until
from tests.runtime.gateway.conftest import PROFILE, asked
from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving
from tests.workers.tracing.collector import Received, TestCollector, collecting


@dataclass(frozen=True)
class Traced:
    """A deployment that exports traces, and the collector."""

    gateway: ScriptedGateway
    collector: TestCollector

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        async with self.gateway.http(**headers) as http:
            return await http.post(f"{self.gateway.root}{path}", json=body)

    def arrived(self, trace_id: str, *names: str) -> dict[str, Received]:
        """The spans of a trace by name, once those called `names` have arrived."""

        def spans() -> dict[str, Received]:
            return {span.name: span for span in self.collector.of_trace(trace_id)}

        until(lambda: spans().keys() >= {*names}, f"spans {', '.join(names)}")
        return spans()


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    kinds = ("planner", "gpu", "recorder", "gateway")
    with (
        collecting() as collector,
        serving(f"tracing.endpoint={collector.url}", profile=PROFILE, kinds=kinds) as gateway,
    ):
        yield Traced(gateway, collector)


def context(sampled: bool = True) -> TraceContext:
    """A trace context as a client sends it."""
    return TraceContext(os.urandom(16).hex(), os.urandom(8).hex(), sampled)


CHAT = ("/v1/chat/completions", asked("Name a fruit."), "invoke_workflow chat")


@pytest.mark.parametrize(
    ("path", "body", "run_name"),
    [
        CHAT,
        ("/sessions/s-1/v1/chat/completions", asked("Name a fruit."), "invoke_workflow chat"),
        ("/v1/responses", {"model": "llm", "input": "Name a fruit."}, "invoke_workflow chat"),
        ("/v1/runs", {"workflow": "solo", "prompt": "2 + 2?"}, "invoke_workflow solo"),
    ],
)
async def test_the_requests_span_is_a_child_of_the_clients_and_the_parent_of_the_runs(
    traced: Traced, path: str, body: dict[str, Any], run_name: str
) -> None:
    client = context()
    response = await traced.post(path, body, traceparent=str(client))
    assert response.status_code in (200, 202), response.text
    name = f"POST {path.replace('s-1', '{session}')}"
    spans = await asyncio.to_thread(traced.arrived, client.trace_id, name, run_name)
    request, run = spans[name], spans[run_name]
    assert request.parent_id == client.span_id
    assert run.parent_id == request.span_id
    assert request.kind == "server"
    assert request.instance.startswith("gateway")
    assert request.attributes["http.response.status_code"] == response.status_code
    assert request.attributes["url.path"] == path
    assert request.started <= run.started
    assert not request.failed


async def test_without_a_clients_trace_the_request_is_the_root_of_its_runs_trace(
    traced: Traced,
) -> None:
    path, body, run_name = CHAT
    response = await traced.post(path, body)
    run_id = response.headers["x-loopline-run"]
    name = f"POST {path}"
    spans = await asyncio.to_thread(traced.arrived, trace_id_of(run_id), name, run_name)
    assert spans[name].parent_id == ""
    assert spans[run_name].parent_id == spans[name].span_id
    assert spans[run_name].span_id == span_id_of(run_id)


async def test_the_span_of_a_stream_ends_with_its_last_byte(traced: Traced) -> None:
    client = context()
    body = asked("Count to nine.", model="slow", stream=True)
    response = await traced.post("/v1/chat/completions", body, traceparent=str(client))
    assert response.text.endswith("data: [DONE]\n\n")
    name = "POST /v1/chat/completions"
    spans = await asyncio.to_thread(traced.arrived, client.trace_id, name, "serve slow")
    assert spans[name].ended >= spans["serve slow"].ended


async def test_a_refused_request_appears_in_its_clients_trace(traced: Traced) -> None:
    client, unrecorded = context(), context(sampled=False)
    wrong = {"model": "nobody", "messages": []}
    for brought in (unrecorded, client):
        response = await traced.post("/v1/chat/completions", wrong, traceparent=str(brought))
        assert response.status_code == 400
    name = "POST /v1/chat/completions"
    spans = await asyncio.to_thread(traced.arrived, client.trace_id, name)
    assert spans[name].attributes["error.type"] == "400"
    assert not spans[name].failed, "what a client did wrong is no failure of the server"
    assert traced.collector.of_trace(unrecorded.trace_id) == []


async def test_a_second_request_with_one_idempotency_key_joins_the_first_run(
    traced: Traced,
) -> None:
    first, second = context(), context()
    path, body, run_name = CHAT
    for brought in (first, second):
        await traced.post(
            path, body, traceparent=str(brought), **{"idempotency-key": first.span_id}
        )
    name = f"POST {path}"
    spans = await asyncio.to_thread(traced.arrived, first.trace_id, name, run_name)
    joined = await asyncio.to_thread(traced.arrived, second.trace_id, name)
    assert spans[run_name].parent_id == spans[name].span_id
    assert joined.keys() == {name}
    run_id = joined[name].attributes["loopline.run.id"]
    assert run_id == spans[name].attributes["loopline.run.id"]


async def test_a_fork_has_its_own_trace(traced: Traced) -> None:
    path, body = "/v1/runs", {"workflow": "solo", "prompt": "2 + 3?"}
    run_id = (await traced.post(path, body)).json()["id"]

    def status() -> str:
        with traced.gateway.client() as client:
            return client.get(f"/v1/runs/{run_id}").json()["status"]

    ended: Callable[[], bool] = lambda: status() not in ("active", "waiting")  # noqa: E731
    await asyncio.to_thread(until, ended, "end of the run")
    forked = await traced.post(f"/v1/runs/{run_id}/fork", {"at_turn": 0})
    assert forked.status_code == 202, forked.text
    fork_id = forked.json()["id"]
    name = "POST /v1/runs/{id}/fork"
    spans = await asyncio.to_thread(
        traced.arrived, trace_id_of(fork_id), name, "invoke_workflow solo"
    )
    assert spans[name].parent_id == ""
    assert spans["invoke_workflow solo"].parent_id == spans[name].span_id

"""A run over real processes, one of which is killed in mid-step, is one trace at the collector."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import JsonValue

pytest.importorskip("opentelemetry.proto", reason="needs make install")

from loopline.agents.records import JsonObject, Trajectory
from loopline.bus import TRACEPARENT_TAG, BusSettings, TraceContext, span_id_of, trace_id_of
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.settings import (
    GpuWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    TracingSettings,
)
from tests.bus.serving import pending, until
from tests.conftest import quick_settings
from tests.workers.processes import BOXED, scripted_models, spawn, workers_running
from tests.workers.tracing.collector import Received, TestCollector, collecting

CLIENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNRECORDED = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"
PRICES: JsonObject = {"prompt": 1.0, "completion": 2.0}
TOOL_CALL = """
<tool_call>
{"name": "calculate", "arguments": {"expression": "17 * 23"}}
</tool_call>"""
ANSWERS: list[JsonValue] = [
    {"where": ["Use a tool.", "391"], "says": ["\\boxed{391}"]},
    {"where": ["Use a tool."], "says": [TOOL_CALL]},
]


@dataclass(frozen=True)
class Traced:
    """The request, and the spans that reached the collector."""

    trajectory: Trajectory
    trace: list[Received]
    of_client: list[Received]
    """Spans of a run whose client brought a trace."""
    traces: set[str]
    """Ids of the traces that arrived."""


@pytest.fixture(scope="module")
def traced(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traced]:
    server = next(iter(_shared_servers.values()))
    settings = quick_settings(server.url, lease_seconds=1.5)
    with collecting() as collector:
        yield asyncio.run(_ask(settings, collector, tmp_path_factory.mktemp("workers")))


async def _ask(settings: BusSettings, collector: TestCollector, folder: Path) -> Traced:
    models = scripted_models(price=PRICES, scripted={"latency_seconds": 0.3, "answers": ANSWERS})
    doomed = RoleWorkerSettings(bus=settings, name="doomed", roles=("slm",))
    workers = [
        RoleWorkerSettings(bus=settings, name="planner", roles=("planner", "expert", "solo")),
        GpuWorkerSettings(bus=settings, name="gpu", models=models),
        ToolWorkerSettings(
            bus=settings, name="tool", tracing=TracingSettings(endpoint=collector.url)
        ),
        RecorderSettings(
            bus=settings,
            name="recorder",
            store=folder / "store",
            linger_seconds=0.1,
            tracing=TracingSettings(endpoint=collector.url, content=True),
            providers=dict.fromkeys(models, "scripted"),
            priced_pools=tuple(models),
        ),
    ]
    process = spawn(doomed, folder)
    async with workers_running(workers, folder), Client.connect(settings) as client:
        tags = {"session": "s-1", "user": "ada"}
        run = client.new_run("What is 12 * 7 + 5?", options=BOXED, tags=tags, stream=True)
        await client.submit(run)

        async def in_hand() -> bool:
            return await pending(client.bus, "role:slm") == 1

        await until(in_hand, "step of the worker that is killed")
        process.kill()
        async with workers_running([doomed.model_copy(update={"name": "heir"})], folder):
            trajectory = await client.wait(run.id)
            brought = client.new_run(
                "Use a tool.", workflow="solo", options=BOXED, tags={TRACEPARENT_TAG: CLIENT}
            )
            unrecorded = client.new_run(
                "What is 3 + 3?", options=BOXED, tags={TRACEPARENT_TAG: UNRECORDED}
            )
            for another in (unrecorded, brought):
                await client.submit(another)
                await client.wait(another.id)
        ids = trace_id_of(run.id), CLIENT.split("-")[1]
        await until(lambda: all(map(collector.of_trace, ids)), "both traces")
        await until(
            lambda: "run calculate" in {span.name for span in collector.of_trace(ids[1])},
            "span of the tool worker",
        )
    return Traced(
        trajectory,
        collector.of_trace(ids[0]),
        collector.of_trace(ids[1]),
        {span.trace_id for span in collector.spans},
    )


def test_a_run_over_four_processes_and_a_kill_forms_one_tree_without_orphans(
    traced: Traced,
) -> None:
    spans = {span.span_id: span for span in traced.trace}
    [root] = [span for span in traced.trace if not span.parent_id]
    assert root.span_id == span_id_of(traced.trajectory.run.id)
    assert all(span.parent_id in spans for span in traced.trace if span is not root)
    # The killed worker committed nothing; its work is visible in the step that took over.
    instances = {span.instance for span in traced.trace}
    assert instances == {"", "planner", "heir", "gpu"}
    steps = [span for span in traced.trace if span.name.startswith("invoke_agent")]
    assert len(steps) == len(traced.trajectory.steps)
    taken_over = [span for span in steps if "loopline.taken_over" in span.events]
    assert [span.attributes["gen_ai.agent.name"] for span in taken_over] == ["slm"]
    calls = [call for step in traced.trajectory.steps for call in step.calls]
    chats = [
        span for span in traced.trace if span.attributes.get("gen_ai.operation.name") == "chat"
    ]
    assert {span.attributes["gen_ai.response.id"] for span in chats} == {call.id for call in calls}
    assert sum(span.name.startswith("serve ") for span in traced.trace) == len(chats)


def test_every_span_lies_within_its_parent_and_has_no_negative_duration(traced: Traced) -> None:
    spans = {span.span_id: span for span in traced.trace}
    run = traced.trajectory.run
    for span in traced.trace:
        assert run.created * 1e9 - 5e7 <= span.started <= span.ended  # each process has its clock
        assert span.ended <= traced.trajectory.ended * 1e9 + 1e9
        if span.parent_id:
            parent = spans[span.parent_id]
            assert parent.started <= span.started <= span.ended <= parent.ended
    models = [span for span in traced.trace if span.name.startswith("serve ")]
    assert all(span.ended - span.started >= 0.3e9 for span in models)


def test_each_kind_of_span_has_the_attributes_that_langfuse_and_phoenix_require(
    traced: Traced,
) -> None:
    kinds = {"invoke_workflow": "CHAIN", "invoke_agent": "AGENT", "chat": "LLM"}
    for operation, kind in kinds.items():
        spans = [
            span
            for span in traced.trace
            if span.attributes.get("gen_ai.operation.name") == operation
        ]
        assert spans, operation
        for span in spans:
            assert span.attributes["openinference.span.kind"] == kind
            assert span.attributes["session.id"] == "s-1"
            assert span.attributes["gen_ai.conversation.id"] == "s-1"
            assert span.attributes["user.id"] == "ada"
            assert span.attributes["input.value"]
            assert span.attributes["output.value"]
            assert span.resource["service.name"] == "loopline"
            if operation == "chat":
                assert span.attributes.keys() >= REQUIRED_OF_A_CHAT
                assert span.kind == "client"


REQUIRED_OF_A_CHAT = {
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.request.temperature",
    "gen_ai.request.max_tokens",
    "gen_ai.request.stream",
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "llm.model_name",
    "llm.provider",
    "llm.invocation_parameters",
    "llm.token_count.prompt",
    "llm.token_count.completion",
    "llm.token_count.total",
    "llm.cost.total",
    "llm.input_messages.0.message.role",
    "llm.input_messages.0.message.content",
    "llm.output_messages.0.message.content",
    "langfuse.observation.type",
    "langfuse.observation.cost_details",
    "langfuse.observation.completion_start_time",
}


def test_a_run_is_part_of_its_client_s_trace(traced: Traced) -> None:
    client = TraceContext.parse(CLIENT)
    assert client is not None
    spans = {span.span_id: span for span in traced.of_client}
    roots = [span for span in traced.of_client if span.parent_id not in spans]
    assert [span.parent_id for span in roots] == [client.span_id]
    assert roots[0].name == "invoke_workflow solo"


def test_a_tool_s_span_has_its_arguments_and_its_result(traced: Traced) -> None:
    [tool] = [span for span in traced.of_client if span.name == "execute_tool calculate"]
    assert tool.attributes["openinference.span.kind"] == "TOOL"
    assert tool.attributes["gen_ai.operation.name"] == "execute_tool"
    assert tool.attributes["gen_ai.tool.name"] == tool.attributes["tool.name"] == "calculate"
    assert tool.attributes["gen_ai.tool.call.arguments"] == '{"expression":"17 * 23"}'
    assert tool.attributes["output.value"] == '{"result":"391"}'


def test_the_tool_worker_s_span_lies_within_the_call(traced: Traced) -> None:
    [tool] = [span for span in traced.of_client if span.name == "execute_tool calculate"]
    [work] = [span for span in traced.of_client if span.name == "run calculate"]
    assert work.parent_id == tool.span_id
    assert work.instance == "tool"
    assert tool.instance == "planner"
    assert tool.started - 5e7 <= work.started <= work.ended <= tool.ended + 5e7  # two clocks
    assert work.attributes["loopline.deliveries"] == 1


def test_a_run_whose_client_does_not_record_its_trace_is_not_exported(traced: Traced) -> None:
    # It ended before the other run, which has arrived.
    assert traced.traces == {trace_id_of(traced.trajectory.run.id), CLIENT.split("-")[1]}

"""From a journal to spans: times, ids, errors, and attributes in each version of the
conventions."""

from __future__ import annotations

import random
from typing import Any, get_args

import pytest

pytest.importorskip("opentelemetry.proto", reason="needs make install")

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from loopline.agents.records import Outcome
from loopline.agents.usage import UnknownUsage, UsageEntry
from loopline.workers.tracing.conventions import Conventions, Semconv
from loopline.workers.tracing.otlp import encode
from loopline.workers.tracing.spans import Span, is_sampled, spans_of
from tests.workers.tracing.recorded import RUN_ID, SECRET, call, run, step, timing, trajectory

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


async def spans(*steps: Any, conventions: Conventions | None = None, **changes: Any) -> list[Span]:
    return await spans_of(trajectory(*steps, **changes), conventions or Conventions())


def named(trace: list[Span], prefix: str) -> list[Span]:
    return [span for span in trace if span.name.startswith(prefix)]


async def test_a_step_is_the_parent_of_its_requests_in_their_order() -> None:
    trace = await spans()
    assert [span.name for span in trace] == [
        "invoke_workflow agent", "invoke_agent agent", "chat tiny", "serve llm",
        "execute_tool weather", "chat tiny", "serve llm",
    ]  # fmt: skip
    root, agent, chat, serve, tool, _, _ = trace
    assert [span.parent_id for span in (root, agent, chat, serve, tool)] == [
        "", root.span_id, agent.span_id, chat.span_id, agent.span_id,
    ]  # fmt: skip
    assert [span.worker for span in (root, agent, chat, serve, tool)] == [
        "", "agent-1", "agent-1", "gpu-1", "agent-1",
    ]  # fmt: skip
    assert (chat.started, chat.ended) == (101.1, 102.1)
    assert (serve.started, serve.ended) == (pytest.approx(101.4), 102.0)
    assert len({span.span_id for span in trace}) == len(trace)
    assert await spans() == trace


async def test_a_repeated_step_shows_when_its_stored_answer_was_generated() -> None:
    timings = step().timings.model_copy(
        update={
            "started": 110.0,
            "ended": 111.0,
            "deliveries": 2,
            "requests": (timing(0, "completion", "llm", 110.1, 110.101),),
        }
    )
    trace = await spans(step(timings=timings), ended=112.0)
    [chat] = named(trace, "chat ")
    [agent] = named(trace, "invoke_agent")
    assert (chat.started, chat.ended) == (pytest.approx(101.4), 102.0)
    assert chat.attributes["loopline.reply.stored"] is True
    assert agent.started == chat.started
    assert [event.name for event in agent.events] == ["loopline.taken_over"]


async def test_a_tool_s_error_and_a_run_s_failure_are_errors_of_their_spans() -> None:
    trace = await spans(outcome=Outcome.DEADLINE, answer=None, reason="too late")
    [root] = named(trace, "invoke_workflow")
    [tool] = named(trace, "execute_tool")
    assert (root.error, root.attributes["error.type"]) == ("too late", "deadline")
    assert (tool.error, tool.attributes["error.type"]) == ("tool_error", "tool_error")


async def test_a_discarded_paid_call_is_an_event_of_its_step() -> None:
    why = UnknownUsage(why="its worker ended", prompt=9, completion=9, micro_dollars=1)
    entry = UsageEntry(
        run_id=RUN_ID, call_id="c", agent="agent", turn=0, policy=call(0).policy, usage=None,
        cost_micro_dollars=None, unknown=why, latency=call(0).latency, discarded=True, at=101.5,
    )  # fmt: skip
    trace = await spans_of(trajectory(), Conventions(), [entry])
    [agent] = named(trace, "invoke_agent")
    assert [(event.name, event.at) for event in agent.events] == [
        ("loopline.call_discarded", 101.5)
    ]
    assert agent.events[0].attributes["loopline.usage.unknown"] == "its worker ended"


async def test_a_fork_links_to_its_parent_and_does_not_repeat_its_steps() -> None:
    parent = "01a0c450-6c78-762c-82ca-3decceec41a2"
    forked = run(parent=parent, created=103.0)
    inherited = step(run_id=parent)
    trace = await spans(inherited, step(turn=1, candidates=()), run=forked)
    assert [link.trace_id for link in trace[0].links] == [parent.replace("-", "")]
    assert len(named(trace, "invoke_agent")) == 1


async def test_no_content_of_a_run_is_exported_unless_enabled() -> None:
    for semconv in get_args(Semconv):
        conventions = Conventions(semconv=semconv)
        assert SECRET.encode() not in encode(await spans(conventions=conventions), "")
        wanted = Conventions(semconv=semconv, content=True)
        assert SECRET.encode() in encode(await spans(conventions=wanted), "")


async def test_each_version_of_the_conventions_has_its_own_names() -> None:
    tops = {version: (await spans(conventions=Conventions(version)))[:3] for version in VERSIONS}
    root, agent, chat = zip(*tops.values(), strict=True)
    assert [span.name.split()[0] for span in root] == [
        "invoke_workflow", "invoke_workflow", "invoke_agent",
    ]  # fmt: skip
    assert [name_of_workflow(span) for span in root] == [
        "gen_ai.agent.name", "gen_ai.workflow.name", "gen_ai.agent.name",
    ]  # fmt: skip
    assert ["gen_ai.provider.name" in span.attributes for span in agent] == [False, True, False]
    assert [span.attributes.get("gen_ai.system") for span in chat] == [None, None, "loopline"]
    assert [type(span.attributes["gen_ai.request.top_k"]) for span in chat] == [int, float, float]


VERSIONS: tuple[Semconv, ...] = ("0.1", "1.41", "1.36")


def name_of_workflow(span: Span) -> str:
    [name] = [key for key, value in span.attributes.items() if value == "agent" and "gen_ai" in key]
    return name


async def test_every_name_is_part_of_its_convention() -> None:
    names = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    conventions = Conventions(content=True, semconv="1.41")
    used = {key for span in await spans(conventions=conventions) for key in span.attributes}
    assert {key for key in used if key.startswith("gen_ai.")} <= names


async def test_names_for_phoenix_follow_openinference() -> None:
    trace = pytest.importorskip("openinference.semconv.trace", reason="needs make install")
    vocabulary = {
        value
        for name in dir(trace)
        if name.endswith("Attributes")
        for value in vars(getattr(trace, name)).values()
        if isinstance(value, str)
    }
    conventions = Conventions(content=True, priced_pools=frozenset({"llm"}))
    used = {key for span in await spans(conventions=conventions) for key in span.attributes}
    others = ("gen_ai.", "loopline.", "langfuse.", "error.")
    flat = {key for key in used if not key.startswith(others) and "_messages." not in key}
    assert flat <= vocabulary
    assert "openinference.span.kind" in flat


async def test_the_cost_of_an_unpriced_call_is_omitted() -> None:
    [chat, _] = named(await spans(), "chat ")
    assert "llm.cost.total" not in chat.attributes
    priced = Conventions(priced_pools=frozenset({"llm"}))
    [chat, _] = named(await spans(conventions=priced), "chat ")
    assert chat.attributes["llm.cost.total"] == 20 / 1_000_000


def test_the_requested_share_of_runs_is_traced() -> None:
    rng = random.Random(7)
    bits = [f"{rng.getrandbits(62):016x}" for _ in range(500)]
    runs = [run(id=f"01a0c450-6c78-7000-{text[:4]}-{text[4:]}") for text in bits]
    assert 0.4 < sum(is_sampled(candidate, 0.5) for candidate in runs) / len(runs) < 0.6
    assert all(is_sampled(candidate, 1.0) for candidate in runs)
    assert not any(is_sampled(candidate, 0.0) for candidate in runs)


async def test_a_huge_text_is_truncated_and_a_number_beyond_64_bits_is_exported() -> None:
    content = Conventions(content=True)
    big = call(0, text="x" * 5_000_000)
    candidates = ({"calls": (big,)},)
    trace = await spans(step(candidates=candidates, input={"n": 2**80}), conventions=content)
    encoded = encode(trace, "")
    assert len(encoded) < 1_000_000
    assert str(2**80).encode() in encoded

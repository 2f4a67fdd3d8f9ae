"""Converts a run's journal to the spans of one trace.

Their times are those that the workers recorded, so a killed worker's work is included as far as it
was committed. Every id is derived from the object that the span represents
(`loopline.bus.trace_context`), so a run that is exported twice yields the same trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from loopline.agents.records import (
    Call,
    JsonObject,
    Message,
    Outcome,
    Run,
    Step,
    Trajectory,
)
from loopline.agents.replay import recorded_prompts, recorded_tools
from loopline.agents.usage import UsageEntry
from loopline.bus import (
    TRACEPARENT_TAG,
    TraceContext,
    span_id_of,
    step_name,
    trace_id_of,
)
from loopline.workers.completions import request_key
from loopline.workers.tracing.conventions import Attributes, Conventions

_FAILED = frozenset({Outcome.ERROR, Outcome.DEADLINE, Outcome.BUDGET, Outcome.CANCELLED})
"""Outcomes without an answer."""


class CollectorUnavailable(Exception):
    """The collector can't be reached, or asks to retry later."""


class SpansRefused(Exception):
    """The collector will never accept these spans."""


@dataclass(frozen=True)
class SpanEvent:
    name: str
    at: float
    """Unix seconds."""
    attributes: Attributes


@dataclass(frozen=True)
class Span:
    """One span, before it is encoded."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for the root of a trace."""
    started: float
    """Unix seconds."""
    ended: float
    attributes: Attributes
    kind: Literal["internal", "server", "client"] = "internal"
    worker: str = ""
    """The process that did the work; empty if no single process did it."""
    error: str = ""
    """The error; empty on success."""
    events: tuple[SpanEvent, ...] = ()
    links: tuple[TraceContext, ...] = ()
    """Spans in other traces from which this one originates."""


def is_sampled(run: Run, ratio: float) -> bool:
    """Whether a run's trace is recorded: as its client decided, if it sent a trace context;
    otherwise by the random bits of the trace id, so that all processes decide alike."""
    client = TraceContext.parse(run.tags.get(TRACEPARENT_TAG, ""))
    if client is not None:
        return client.sampled
    return int(trace_id_of(run.id)[-14:], 16) < ratio * (1 << 56)


async def spans_of(
    trajectory: Trajectory, conventions: Conventions, ledger: Sequence[UsageEntry] = ()
) -> list[Span]:
    """The run's span first, then those of its steps, each before those of its requests. `ledger`
    marks the calls that were paid for but not used."""
    run = trajectory.run
    traceparent = run.tags.get(TRACEPARENT_TAG, "")
    client = TraceContext.parse(traceparent)
    trace_id = trace_id_of(run.id, traceparent)
    discarded: dict[tuple[int, int], list[UsageEntry]] = defaultdict(list)
    for entry in ledger:
        if entry.discarded:
            discarded[entry.turn, entry.branch].append(entry)
    inner: list[Span] = []
    for position, step in enumerate(trajectory.steps):
        if step.run_id != run.id or step.timings.ended < run.created:
            continue  # belongs to the run from which this one was forked, whose trace contains it
        trace = _StepTrace(trace_id, run, step, conventions)
        unused_calls = discarded.pop((step.turn, step.branch), [])
        inner += await trace.spans(trajectory.steps[:position], unused_calls)
    name, attributes = conventions.run(run)
    attributes["loopline.outcome"] = trajectory.outcome.value
    error = ""
    if trajectory.outcome in _FAILED:
        error = trajectory.reason or trajectory.outcome.value
        attributes["error.type"] = trajectory.outcome.value
    lost = [entry for entries in discarded.values() for entry in entries]
    root = Span(
        name=name,
        trace_id=trace_id,
        span_id=span_id_of(run.id),
        parent_id="" if client is None else client.span_id,
        started=min([run.created, *(span.started for span in inner)]),
        ended=max([trajectory.ended, run.created, *(span.ended for span in inner)]),
        attributes=attributes | conventions.run_content(run, trajectory.answer),
        error=error,
        events=tuple(_discarded_event(entry) for entry in lost),
        links=_parent_links(run),
    )
    return [root, *inner]


def _parent_links(run: Run) -> tuple[TraceContext, ...]:
    if run.parent is None or not (trace := trace_id_of(run.parent)):
        return ()
    return (TraceContext(trace, span_id_of(run.parent)),)


def _discarded_event(entry: UsageEntry) -> SpanEvent:
    """Event for a model call that was paid for, or may have been, without a usable answer."""
    attributes: Attributes = {
        "loopline.call.id": entry.call_id,
        "loopline.policy.name": entry.policy.name,
    }
    if entry.usage is not None:
        attributes["loopline.usage.input_tokens"] = entry.usage.prompt
        attributes["loopline.usage.output_tokens"] = entry.usage.completion
    if entry.unknown is not None:
        attributes["loopline.usage.unknown"] = entry.unknown.why
    return SpanEvent("loopline.call_discarded", entry.at, attributes)


@dataclass(frozen=True)
class _StepTrace:
    """Builds the spans of one step."""

    trace_id: str
    run: Run
    step: Step
    conventions: Conventions

    @property
    def span_id(self) -> str:
        return span_id_of(step_name(self.run.id, self.step.turn, self.step.branch))

    async def spans(self, journal: tuple[Step, ...], discarded: Sequence[UsageEntry]) -> list[Span]:
        """The step's span, then those of its requests. `journal` contains the steps before it."""
        step, timings = self.step, self.step.timings
        prompts: Sequence[Sequence[Message]] = ()
        if self.conventions.content:
            prompts = await recorded_prompts(self.run, journal, step)
        requests = list(self._requests(prompts))
        name, attributes = self.conventions.step(self.run, step)
        error = ""
        if step.decision.kind == "failed":
            error = str(step.decision.data.get("reason", "failed"))
            attributes["error.type"] = str(step.decision.data.get("failure", "failed"))
        span = Span(
            name=name,
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_id=span_id_of(self.run.id),
            started=min([timings.started, *(request.started for request in requests)]),
            ended=max([timings.ended, *(request.ended for request in requests)]),
            attributes=attributes | self.conventions.step_content(step),
            worker=step.worker,
            error=error,
            events=(*self._redelivery_events(), *map(_discarded_event, discarded)),
        )
        return [span, *requests]

    def _redelivery_events(self) -> Iterable[SpanEvent]:
        timings = self.step.timings
        if timings.deliveries > 1:
            deliveries: Attributes = {"loopline.deliveries": timings.deliveries}
            yield SpanEvent("loopline.taken_over", timings.started, deliveries)
        if timings.retries:
            retries: Attributes = {"loopline.retries": timings.retries}
            yield SpanEvent("loopline.retried", timings.started, retries)

    def _requests(self, prompts: Sequence[Sequence[Message]]) -> Iterable[Span]:
        step = self.step
        calls: dict[str, list[Call]] = defaultdict(list)
        for call in step.calls:
            calls[call.id.partition("#")[0]].append(call)
        outputs: dict[str, list[tuple[JsonObject, JsonObject]]] = defaultdict(list)
        for name, arguments, output in recorded_tools(step):
            outputs[name].append((arguments, output))
        completions = 0
        for timing in step.timings.requests:
            key = request_key(self.run, step.turn, step.branch, timing.number)
            span = Span(
                name="",
                trace_id=self.trace_id,
                span_id=span_id_of(key),
                parent_id=self.span_id,
                started=timing.started,
                ended=timing.ended,
                attributes={"error.type": timing.error} if timing.error else {},
                worker=step.worker,
                error=timing.error,
            )
            if timing.kind == "tool":
                recorded = outputs[timing.name]
                arguments, output = recorded.pop(0) if recorded else (None, None)
                yield self._tool(span, timing.name, arguments, output)
                continue
            span = replace(span, kind="client")
            prompt = prompts[completions] if completions < len(prompts) else None
            completions += 1
            if calls[key]:
                answers = sorted(calls[key], key=lambda call: (len(call.id), call.id))
                yield from self._completion(span, answers, prompt)
            else:
                name, attributes = self.conventions.failed_completion(self.run, timing.name)
                yield replace(span, name=name, attributes=span.attributes | attributes)

    def _tool(
        self, span: Span, tool: str, arguments: JsonObject | None, output: JsonObject | None
    ) -> Span:
        name, attributes = self.conventions.tool(self.run, tool, arguments, output)
        error = span.error
        if not error and output is not None and output.keys() == {"error"}:
            error = attributes["error.type"] = "tool_error"
        return replace(span, name=name, attributes=span.attributes | attributes, error=error)

    def _completion(
        self, span: Span, calls: Sequence[Call], prompt: Sequence[Message] | None
    ) -> Iterable[Span]:
        """The span of the request from the role's side, and that of the worker that answered."""
        answers = [(call, call.answered_at) for call in calls if call.answered_at is not None]
        ended = max((at for _, at in answers), default=span.ended)
        started = min((at - call.latency.total for call, at in answers), default=span.started)
        stored: Attributes = {}
        if ended < span.started:
            # Answered before it was asked: for the worker that executed this step before.
            span = replace(span, started=started, ended=ended)
            stored = {"loopline.reply.stored": True}
        else:
            started = max(started, span.started)
            span = replace(span, ended=max(ended, span.ended))
        name, attributes = self.conventions.completion(self.run, calls, span.started)
        content = self.conventions.completion_content(calls, prompt)
        yield replace(span, name=name, attributes=span.attributes | attributes | content | stored)
        if answers:
            name, attributes = self.conventions.serving(calls)
            yield Span(
                name=name,
                trace_id=self.trace_id,
                span_id=span_id_of(f"{span.span_id}/serve"),
                parent_id=span.span_id,
                started=started,
                ended=ended,
                attributes=attributes,
                kind="server",
                worker=calls[0].worker,
            )

"""Runs as they are on the bus, for tests of how a response is built."""

from __future__ import annotations

from typing import Any

from loopline.agents.records import (
    Call,
    Candidate,
    Decision,
    Message,
    Outcome,
    PolicyRef,
    Run,
    SamplingParams,
    Step,
    StepTimings,
    Task,
    ToolCall,
    Trajectory,
    Usage,
)
from loopline.runtime.gateway.responses_body import ResponseView, record_of
from loopline.runtime.gateway.responses_request import ResponseRequest
from loopline.runtime.gateway.service import RESPONSE_TAG

RUN_ID = "01a2173d-4811-76bc-8f7a-890c87481137"


def call(text: str, *tool_calls: ToolCall, **fields: Any) -> Call:
    return Call(
        id="call",
        policy=PolicyRef(name="llm", base="m"),
        text=text,
        tool_calls=tool_calls,
        sampling=SamplingParams(temperature=0.5),
        finish_reason="tool_calls" if tool_calls else "stop",
        usage=Usage(prompt=7, cached=2, completion=5, reasoning=1, source="engine"),
        cost_micro_dollars=0,
        trainable=False,
    ).model_copy(update=fields)


def view_of(**body: Any) -> ResponseView:
    """The view of the run that a request with this body starts."""
    params = ResponseRequest.model_validate({"model": "llm", "input": "Go.", **body})
    run = Run(
        id=RUN_ID,
        task=Task(prompt="Go.", messages=(Message(role="user", content="Go."),)),
        workflow="chat",
        options=params.options.model_dump(mode="json", exclude_defaults=True),
        policies={"chat": "llm"},
        created=1000.5,
        deadline=2000,
        stream=bool(params.stream),
        tags={RESPONSE_TAG: params.record.model_dump_json(by_alias=True, exclude_defaults=True)},
    )
    record = record_of(run)
    assert record is not None
    return ResponseView(run, record, "llm", 1.0, 1.0)


def trajectory_of(
    view: ResponseView, *calls: Call, outcome: Outcome = Outcome.ANSWERED, **fields: Any
) -> Trajectory:
    decision = fields.pop("decision", Decision(kind="answer", data={"answer": "…"}))
    step = Step(
        run_id=view.run.id,
        turn=0,
        agent="chat",
        candidates=(Candidate(calls=calls),),
        decision=decision,
        timings=StepTimings(started=1001, ended=1002),
        worker="w",
    )
    return Trajectory(run=view.run, steps=(step,), outcome=outcome, ended=1002.5, **fields)

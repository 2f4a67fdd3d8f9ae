"""A made-up journal for tests of spans, with two requests per step."""

from __future__ import annotations

from typing import Any

from loopline.agents.records import (
    Call,
    Candidate,
    Decision,
    Latency,
    Outcome,
    PolicyRef,
    RequestTiming,
    Run,
    SamplingParams,
    Step,
    StepTimings,
    Task,
    ToolCall,
    Trajectory,
    Usage,
)

RUN_ID = "01a0c450-6c78-762c-82ca-3decceec41a1"
SECRET = "a secret"


def run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": RUN_ID,
        "task": Task(prompt=SECRET),
        "workflow": "agent",
        "policies": {"agent": "llm"},
        "created": 100.0,
        "deadline": 700.0,
    }
    return Run.model_validate(values | changes)


def call(number: int, **changes: Any) -> Call:
    values: dict[str, Any] = {
        "id": f"{RUN_ID}/0.0/{number}",
        "policy": PolicyRef(name="llm", base="tiny"),
        "text": SECRET,
        "sampling": SamplingParams(temperature=0.5, seed=3, top_k=4),
        "finish_reason": "stop",
        "usage": Usage(prompt=10, cached=4, completion=5, reasoning=2, source="engine"),
        "cost_micro_dollars": 20,
        "latency": Latency(queue=0.1, first_token=0.2, decode=0.3),
        "trainable": False,
        "worker": "gpu-1",
        "answered_at": 102.0,
    }
    return Call.model_validate(values | changes)


CALLS_A_TOOL = ToolCall(id="1", name="weather", arguments={"city": SECRET})


def timing(number: int, kind: str, name: str, started: float, ended: float) -> RequestTiming:
    return RequestTiming.model_validate(
        {"number": number, "kind": kind, "name": name, "started": started, "ended": ended}
    )


def step(**changes: Any) -> Step:
    """A completion, a tool, another completion."""
    first = call(0, tool_calls=(CALLS_A_TOOL,), finish_reason="tool_calls")
    second = call(2, answered_at=104.5)
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "turn": 0,
        "agent": "agent",
        "candidates": (Candidate(calls=(first, second)),),
        "decision": Decision(kind="answer", data={"answer": SECRET}),
        "observation": {"turns": [[{"tool": "weather", "output": {"error": f"no {SECRET}"}}], []]},
        "timings": StepTimings(
            started=101.0,
            ended=105.0,
            requests=(
                timing(0, "completion", "llm", 101.1, 102.1),
                timing(1, "tool", "weather", 102.2, 103.2),
                timing(2, "completion", "llm", 103.3, 104.6),
            ),
        ),
        "worker": "agent-1",
    }
    return Step.model_validate(values | changes)


def trajectory(*steps: Step, **changes: Any) -> Trajectory:
    values: dict[str, Any] = {
        "run": run(),
        "steps": steps or (step(),),
        "outcome": Outcome.ANSWERED,
        "answer": SECRET,
        "ended": 106.0,
    }
    return Trajectory.model_validate(values | changes)

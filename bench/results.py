"""Records of one finished run: one line in `items.jsonl`, one in `transcripts.jsonl`.

The recorder's store has the trajectory itself, with its token ids; these records have what reports,
rescoring and readers need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, JsonValue

from loopline.agents.records import (
    Call,
    Candidate,
    JsonObject,
    Outcome,
    Record,
    Step,
    Trajectory,
)
from loopline.agents.usage import UsageEntry
from loopline.bench.checkers import Score
from loopline.bench.judgement import Judgement
from loopline.bench.ledger import total
from loopline.bench.taxonomy import signals_of


class Admission(Record):
    """A run that is about to be admitted. This record is on disk before the bus receives the run,
    so no run is ever paid for and then forgotten."""

    type: Literal["admitted"] = "admitted"
    run_id: str
    arm: str
    item: str


class Seconds(Record):
    """Parts of a run's time. Parallel branches add up, so the parts may exceed `wall`. A step's
    candidates are sampled in parallel, so only the longest counts (results stored by an older bench
    add up all of them)."""

    wall: float
    """Seconds from the run's creation to its end."""
    queue: float
    """Seconds of waiting: for a worker on the bus, and in an engine's queue."""
    pools: dict[str, float]
    """Seconds of computation by model pool, from the start of work to the last token."""
    other: float
    """Seconds for the rest of the steps: tools, hand-over and commits."""


class Result(Record):
    """A finished run of one arm on one item."""

    type: Literal["result"] = "result"
    run_id: str
    arm: str
    item: str
    outcome: Outcome
    reason: str | None
    prediction: str | None
    """Last text of the model; None if the run did not end with an answer."""
    answer: str
    """Answer that the primary checker read from `prediction`."""
    value: str | None
    where: str
    verdicts: dict[str, bool]
    signals: tuple[str, ...]
    delegations: int
    """Sub-problems handed to the small model."""
    escalations: int
    """Sub-problems that the small model handed on to the expert."""
    tools: int
    """Number of calls to other tools."""
    calls: int
    prompt_tokens: int
    completion_tokens: int
    micro_dollars: int
    seconds: Seconds
    measures: dict[str, float] = Field(default_factory=dict)
    """Further measures that apply to the item."""
    detail: str = ""
    """The judge's description of the fault."""

    @property
    def right(self) -> bool:
        """Verdict of the primary (first) checker."""
        return next(iter(self.verdicts.values()))

    def scored(self, score: Score) -> Result:
        """Return the same result with a new score."""
        return self.model_copy(
            update={
                "answer": score.answer,
                "value": score.value,
                "where": score.where,
                "verdicts": score.verdicts.as_dict(),
            }
        )


def result_of(
    trajectory: Trajectory,
    entries: list[UsageEntry],
    *,
    arm: str,
    item: str,
    judgement: Judgement,
    reference_values: tuple[str, ...],
) -> Result:
    """Return the result line for a finished run."""
    paid = total(entries)
    steps = trajectory.steps
    return Result(
        run_id=trajectory.run.id,
        arm=arm,
        item=item,
        outcome=trajectory.outcome,
        reason=trajectory.reason,
        prediction=judgement.prediction,
        answer=judgement.answer,
        value=judgement.value,
        where=judgement.where,
        verdicts=judgement.verdicts,
        signals=(*signals_of(trajectory, reference_values), *judgement.signals),
        delegations=sum(step.agent == "slm" for step in steps),
        escalations=sum(step.agent == "expert" for step in steps),
        tools=sum(_tool_runs(step) for step in steps),
        calls=paid.calls,
        prompt_tokens=paid.prompt,
        completion_tokens=paid.completion,
        micro_dollars=paid.micro_dollars,
        seconds=_seconds(trajectory),
        measures=judgement.measures,
        detail=judgement.detail,
    )


def transcript_of(trajectory: Trajectory) -> JsonObject:
    """Return a run for readers: requests, texts and tool results."""
    begin = trajectory.run.created
    steps: list[JsonValue] = [_step(step, begin) for step in trajectory.steps]
    return {
        "run_id": trajectory.run.id,
        "outcome": str(trajectory.outcome),
        "reason": trajectory.reason,
        "wall": round(trajectory.ended - begin, 4),
        "steps": steps,
    }


def _step(step: Step, begin: float) -> JsonObject:
    data = step.decision.data
    calls = [
        call for number in range(len(step.candidates)) for call in _candidate_calls(step, number)
    ]
    return {
        "agent": step.agent,
        "turn": step.turn,
        "branch": step.branch,
        "worker": step.worker,
        "problem": step.input.get("problem"),
        "decision": step.decision.kind,
        "answer": data.get("answer"),
        "reason": data.get("reason"),
        "start": round(step.timings.started - begin, 4),
        "end": round(step.timings.ended - begin, 4),
        "waited": round(step.timings.waited, 4),
        "selected": step.selected,
        "calls": [*calls],
    }


def _candidate_calls(step: Step, number: int) -> list[JsonObject]:
    """Return the calls of one candidate. Only the executed candidate has tool results."""
    candidate = step.candidates[number]
    turns = step.observation.get("turns") if number == step.selected else None
    outputs = turns if isinstance(turns, list) else []
    calls = [
        {"candidate": number, **_call(call, outputs, at)} for at, call in enumerate(candidate.calls)
    ]
    if calls and number == step.selected:
        written = _written_call(step, candidate, outputs)
        if written is not None:
            calls[-1]["tools"] = [written]
    return calls


def _call(call: Call, outputs: Sequence[JsonValue], at: int) -> JsonObject:
    tools: list[JsonValue] = [
        {
            "name": tool.name,
            "arguments": tool.arguments if tool.error is None else tool.raw_arguments,
            "output": _tool_output(outputs, at, position),
        }
        for position, tool in enumerate(call.tool_calls)
    ]
    latency = call.latency
    return {
        "pool": call.policy.name,
        "model": call.policy.base,
        "text": call.text,
        "finish": call.finish_reason,
        "tools": tools,
        "tokens": [call.usage.prompt, call.usage.cached, call.usage.completion],
        "micro": call.cost_micro_dollars,
        "seconds": [
            round(latency.queue, 4),
            round(latency.first_token, 4),
            round(latency.decode, 4),
        ],
    }


def _written_call(
    step: Step, candidate: Candidate, turns: Sequence[JsonValue]
) -> JsonObject | None:
    """Return a call that the model wrote as text (as a caller does), with its observation."""
    if step.decision.kind not in ("call", "refused") or any(c.tool_calls for c in candidate.calls):
        return None
    data = step.decision.data
    return {
        "name": data.get("name", "no call"),
        "arguments": data.get("arguments", {}),
        "output": _tool_output(turns, 0, 0),
    }


def _tool_output(turns: Sequence[JsonValue], at: int, position: int) -> JsonObject | None:
    """Answer of a tool; None for a hand-over: another step has its answer."""
    entries = turns[at] if at < len(turns) else None
    entry = entries[position] if isinstance(entries, list) and position < len(entries) else None
    output = entry.get("output") if isinstance(entry, dict) else None
    return output if isinstance(output, dict) else None


def _tool_runs(step: Step) -> int:
    turns = step.observation.get("turns")
    if not isinstance(turns, list):
        return 0
    return sum(
        isinstance(entry, dict) and "tool" in entry
        for entries in turns
        if isinstance(entries, list)
        for entry in entries
    )


def _slowest_calls(step: Step) -> Sequence[Call]:
    """Return the calls of the candidate that took longest; the others did not delay the step."""
    return max(
        (candidate.calls for candidate in step.candidates),
        key=lambda calls: sum(call.latency.total for call in calls),
        default=(),
    )


def _seconds(trajectory: Trajectory) -> Seconds:
    queue = other_seconds = 0.0
    pools: dict[str, float] = {}
    for step in trajectory.steps:
        queue += step.timings.waited
        busy = 0.0
        for call in _slowest_calls(step):
            queue += call.latency.queue
            busy += call.latency.total
            name = call.policy.name
            pools[name] = pools.get(name, 0.0) + call.latency.first_token + call.latency.decode
        other_seconds += max(0.0, step.timings.ended - step.timings.started - busy)
    return Seconds(
        wall=round(max(0.0, trajectory.ended - trajectory.run.created), 4),
        queue=round(queue, 4),
        pools={name: round(value, 4) for name, value in sorted(pools.items())},
        other=round(other_seconds, 4),
    )

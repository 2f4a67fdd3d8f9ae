"""Recorded runs as episodes of verifiers (`traces.jsonl`), which `verifiers.v1` reads with
`read_episodes` and replays.

A run is an episode; an agent's input and output in it is a trace: a graph of messages, in which a
call that extends the previous call continues its branch. The joined token ids of a branch are
exactly those that the model read and wrote.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from loopline.agents.records import Call, SamplingParams, Step
from loopline.runtime.interchange.recorded_runs import RecordedRun

_FINISHED = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}


def episode_of(run: RecordedRun) -> dict[str, Any]:
    """One line of the file."""
    record = run.trajectory
    task = {
        "type": "LooplineTask",
        "data": {"id": run.task_id, "prompt": [_message(message) for message in run.prompt]},
        "key": run.task_id,
    }
    by_agent: dict[str, list[Step]] = defaultdict(list)
    for step in record.steps:
        by_agent[step.agent].append(step)
    return {
        "id": record.run.id,
        "env": {"id": f"loopline-{record.run.workflow}"},
        "task": task,
        "ok": run.ended_with_an_answer,
        "errors": _errors(run),
        "traces": [_trace(run, agent, steps, task) for agent, steps in by_agent.items()],
    }


def _errors(run: RecordedRun) -> list[dict[str, Any]]:
    if run.ended_with_an_answer:
        return []
    record = run.trajectory
    return [{"type": str(record.outcome), "message": record.reason or "no answer"}]


def _trace(
    run: RecordedRun, agent: str, steps: Sequence[Step], task: dict[str, Any]
) -> dict[str, Any]:
    record = run.trajectory
    graph = _Graph([_message(message) for message in run.prompt])
    calls: list[Call] = []
    for step in steps:
        calls_of_step = step.candidates[step.selected].calls if step.candidates else ()
        outputs = _outputs(step)
        for at, call in enumerate(calls_of_step):
            graph.add(call, step.timings.started, outputs[at] if at < len(outputs) else ())
            calls.append(call)
    policies = dict.fromkeys(call.policy.adapter or call.policy.name for call in calls)
    return {
        "version": 1,
        "id": f"{record.run.id}/{agent}",
        "verifiers": {"version": f"loopline {version('loopline')}"},
        "task": task,
        "agent": {
            "name": agent,
            "config": {"model": ", ".join(policies) or None},
            "trainable": bool(calls) and all(call.trainable for call in calls),
        },
        "tools": [
            {"name": tool["function"]["name"], "parameters": tool["function"]["parameters"],
             "description": tool["function"]["description"]}
            for tool in run.tools
        ],
        "nodes": graph.nodes,
        "calls": graph.calls,
        "rewards": {} if run.reward is None else {"reward": {"score": run.reward}},
        "metrics": {
            name: value for name, value in record.agent_rewards.items() if name == agent
        },
        "info": run.info,
        "is_completed": True,
        "ok": run.ended_with_an_answer,
        "stop_condition": str(record.outcome),
        "errors": _errors(run),
        "timing": {
            "start": record.run.created,
            "agent": {
                "start": min((step.timings.started for step in steps), default=0.0),
                "end": max((step.timings.ended for step in steps), default=0.0),
            },
        },
    }  # fmt: skip


class _Graph:
    """The messages of one agent, starting with its first call."""

    def __init__(self, opening: list[dict[str, Any]]) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self._opening = opening
        self._ids: tuple[int, ...] = ()
        """Token ids that the last call has read and written."""
        self._last: int | None = None
        self._answers: list[dict[str, Any]] = []
        """Results of the last call's tool calls."""

    def add(self, call: Call, at: float, outputs: Sequence[Any]) -> None:
        """Add a call and the results of its tool calls."""
        is_continuation = bool(self._ids) and call.prompt_ids[: len(self._ids)] == self._ids
        if is_continuation or (self._last is not None and not call.prompt_ids):
            # For an endpoint without ids, consecutive calls of an agent form a conversation.
            parent, read = self._last, self._answers or [{"role": "user", "content": ""}]
            ids = call.prompt_ids[len(self._ids) :]
        else:
            parent, read, ids = None, self._opening, call.prompt_ids
        for number, message in enumerate(read):
            is_last = number == len(read) - 1
            parent = self._node(message, parent, ids if is_last else (), at)
        written: dict[str, Any] = {"role": "assistant", "content": call.said}
        if call.thought:
            written["reasoning_content"] = call.thought
        if call.tool_calls:
            written["tool_calls"] = [
                {
                    "id": tool.id,
                    "name": tool.name,
                    "arguments": tool.raw_arguments or json.dumps(tool.arguments),
                }
                for tool in call.tool_calls
            ]
        node = self._node(written, parent, call.output_ids, at, sampled=True)
        if len(call.logprobs) == len(call.output_ids):
            self.nodes[node]["logprobs"] = list(call.logprobs)
        self.calls.append(_model_call(call, node, at))
        self._last, self._ids = node, (*call.prompt_ids, *call.output_ids)
        self._answers = [
            {"role": "tool", "tool_call_id": tool.id, "content": _text(output), "name": tool.name}
            for tool, output in zip(call.tool_calls, outputs, strict=False)
        ]

    def _node(
        self,
        message: dict[str, Any],
        parent: int | None,
        ids: Sequence[int],
        at: float,
        *,
        sampled: bool = False,
    ) -> int:
        self.nodes.append(
            {
                "parent": parent,
                "message": message,
                "sampled": sampled,
                "timestamp": at,
                "token_ids": list(ids),
                "mask": [sampled] * len(ids),
            }
        )
        return len(self.nodes) - 1


def _sampling(sampling: SamplingParams) -> dict[str, float]:
    temperature = {} if sampling.endpoint_temperature else {"temperature": sampling.temperature}
    return {**temperature, "top_p": sampling.top_p}


def _model_call(call: Call, node: int, at: float) -> dict[str, Any]:
    return {
        "node": node,
        "model": call.policy.adapter or call.policy.name,
        "sampling": _sampling(call.sampling),
        "finish_reason": _FINISHED.get(call.finish_reason),
        "usage": {
            "prompt_tokens": call.usage.prompt - call.usage.cached,
            "completion_tokens": call.usage.completion,
            "cached_input_tokens": call.usage.cached,
            "reasoning_tokens": call.usage.reasoning,
        },
        "time": {"start": at, "end": at + call.latency.total},
    }


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Convert a message of the Chat Completions API to verifiers' format."""
    fields = {key: value for key, value in message.items() if key != "name"}
    if calls := message.get("tool_calls"):
        fields["tool_calls"] = [
            {
                "id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
            }
            for call in calls
        ]
    return fields


def _outputs(step: Step) -> list[list[Any]]:
    """Return the tool outputs of each call of the executed candidate."""
    turns = step.observation.get("turns")
    if not isinstance(turns, list):
        return []
    return [
        [entry.get("output", entry) if isinstance(entry, dict) else entry for entry in turn]
        if isinstance(turn, list)
        else []
        for turn in turns
    ]


def _text(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output)

"""Recorded runs with their rewards, as other programs receive them."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopline.agents.records import Message, Outcome, ToolCall, Trajectory
from loopline.runtime.errors import InputError
from loopline.workers.store.records import NoRecords, Skipped, iterate_trajectories
from loopline.workers.store.rewards import Feedback, add, read_rewards, targets_of

_OF_OUTCOME = {Outcome.SOLVED: 1.0, Outcome.FAILED: 0.0}
_CHAT = "chat"
"""Workflow of runs that are one call of a client."""
_ENDED = frozenset({Outcome.ANSWERED, Outcome.SOLVED, Outcome.FAILED})


@dataclass(frozen=True)
class RecordedRun:
    """One ended run."""

    trajectory: Trajectory
    reward: float | None
    """Sum of the posted rewards for the team, its agents and turns; without posts, the workflow's
    reward; without that, 1 if the run was solved, 0 if it failed. None if unknown."""

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """Return the messages in the format of chat templates."""
        task = self.trajectory.run.task
        if not task.messages:
            return [{"role": "user", "content": task.prompt}]
        return [_message(message) for message in task.messages]

    @property
    def completion(self) -> list[dict[str, Any]]:
        """Return the answer as a message; empty for a run without an answer. The answer to a
        client's call may consist of calls to the client's tools."""
        answer, calls = self.trajectory.answer, self._called
        if answer is None and not calls:
            return []
        return [_message(Message(role="assistant", content=answer or "", tool_calls=calls))]

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Return the tools that a client offered with its call, in the Chat Completions format."""
        if self.trajectory.run.workflow != _CHAT:
            return []
        specs: Any = self.trajectory.run.options.get("tools") or ()
        return [{"type": "function", "function": dict(spec)} for spec in specs]

    @property
    def _called(self) -> tuple[ToolCall, ...]:
        """Return the calls to the client's tools in its answer, whose text is then missing."""
        if self.trajectory.run.workflow != _CHAT or not self.trajectory.steps:
            return ()
        step = self.trajectory.steps[-1]
        calls = step.candidates[step.selected].calls if step.candidates else ()
        return calls[0].tool_calls if calls else ()

    @property
    def ended_with_an_answer(self) -> bool:
        has_answer = self.trajectory.answer is not None or bool(self._called)
        return self.trajectory.outcome in _ENDED and has_answer

    @property
    def task_id(self) -> str:
        """Key shared by all runs of a task."""
        task = self.trajectory.run.task
        content = json.dumps([task.environment, task.instance, self.prompt], sort_keys=True)
        return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:16]

    @property
    def tokens(self) -> dict[str, tuple[int, int]]:
        """Input and output tokens by model."""
        sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for step in self.trajectory.steps:
            for call in step.calls:
                model = call.policy.adapter or call.policy.base
                read, wrote = sums[model]
                sums[model] = read + call.usage.prompt, wrote + call.usage.completion
        return dict(sums)

    @property
    def cost_micro_dollars(self) -> int:
        return sum(call.cost_micro_dollars for step in self.trajectory.steps for call in step.calls)

    @property
    def info(self) -> dict[str, Any]:
        """Further facts for readers, without text of the conversation."""
        trajectory = self.trajectory
        run = trajectory.run
        return {
            "run_id": run.id,
            "task_id": self.task_id,
            "workflow": run.workflow,
            "environment": run.task.environment,
            "instance": run.task.instance,
            "outcome": str(trajectory.outcome),
            "reason": trajectory.reason,
            "policies": run.policies,
            "agent_rewards": trajectory.agent_rewards,
            "tags": run.tags,
            "seed": run.seed,
            "created": run.created,
            "ended": trajectory.ended,
            "cost_micro_dollars": self.cost_micro_dollars,
        }


def recorded_runs(
    store: Path, workflow: str | None, skipped: list[Skipped]
) -> Iterator[RecordedRun]:
    """Yield each run of a store once, in the order of its files, with one row group in memory.
    Unreadable rows are added to `skipped`. Raises InputError if there is no store."""
    rewards = read_rewards(store)
    skipped.extend(rewards.skipped)
    by_target = rewards.of_target()
    try:
        for trajectory in iterate_trajectories(store, workflow, skipped):
            feedback = Feedback.of(
                reward
                for target in targets_of(trajectory.run)
                for reward in by_target.get(target, ())
            )
            yield RecordedRun(trajectory, _reward(trajectory, feedback))
    except NoRecords as error:
        raise InputError(str(error)) from error


def _reward(trajectory: Trajectory, feedback: Feedback) -> float | None:
    posted = feedback.team
    for value in (*feedback.agents.values(), *feedback.turns.values()):
        posted = add(posted, value)
    if posted is not None:
        return posted
    if trajectory.team_reward is not None:
        return trajectory.team_reward
    return _OF_OUTCOME.get(trajectory.outcome)


def _message(message: Message) -> dict[str, Any]:
    """Return a message in the format of the Chat Completions API, without absent fields."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        fields["content"] = [
            {"type": "text", "text": part.text}
            if part.type == "text"
            else {"type": "image_url", "image_url": {"url": part.url}}
            for part in message.parts
        ]
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.raw_arguments
                    if call.arguments is None
                    else json.dumps(call.arguments),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields
